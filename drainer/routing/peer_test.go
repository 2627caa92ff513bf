package routing

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/test/tier"
)

// question has a list of servers, and the keys to ask about.
type question struct {
	servers  []Server
	from, to int
}

// asker returns, for each question, the indexes of the servers of its keys.
type asker func(t *testing.T, client string, questions []question, keys [][]byte) [][]int

// library is a client library behind a program in testdata (peer.py describes the protocol).
type library struct {
	command []string
	// probe fails if packages of Debian's are missing.
	probe    []string
	packages []string
	// prepare is called once before the command.
	prepare func(t *testing.T)
}

// run starts the program with args and in on its standard input, and returns its output. One process answers
// all questions of a test.
func (l library) run(t *testing.T, in *bytes.Buffer, args ...string) []byte {
	t.Helper()
	_, err := exec.LookPath(l.command[0])
	tier.Needs(t, strings.Join(l.packages, ", "), err)
	if len(l.probe) > 0 {
		tier.Needs(t, strings.Join(l.packages, ", "), exec.CommandContext(t.Context(), l.probe[0], l.probe[1:]...).Run())
	}
	if l.prepare != nil {
		l.prepare(t)
	}
	cmd := exec.CommandContext(t.Context(), l.command[0], append(slices.Clone(l.command[1:]), args...)...)
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask %v (Debian's packages %s are needed): %v", l.command, strings.Join(l.packages, ", "), err)
	}
	return out
}

func (l library) ask(t *testing.T, client string, questions []question, keys [][]byte) [][]int {
	t.Helper()
	return answers(t, l.run(t, input(client, questions, keys)), questions)
}

func input(client string, questions []question, keys [][]byte) *bytes.Buffer {
	in := bytes.NewBufferString(client + "\n")
	for _, q := range questions {
		fmt.Fprintf(in, "%d %d", q.from, q.to)
		for _, s := range q.servers {
			fmt.Fprintf(in, " %s:%d", s.Host, s.Port)
		}
		in.WriteString("\n")
	}
	for _, k := range keys {
		in.WriteString("\n" + base64.StdEncoding.EncodeToString(k))
	}
	return in
}

func answers(t *testing.T, out []byte, questions []question) [][]int {
	t.Helper()
	var all [][]int
	for line := range strings.Lines(string(out)) {
		if len(all) == len(questions) {
			t.Fatalf("more than %d answers", len(questions))
		}
		q := questions[len(all)]
		owners := make([]int, 0, q.to-q.from)
		for s := range strings.FieldsSeq(line) {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			owners = append(owners, n)
		}
		if len(owners) != q.to-q.from {
			t.Fatalf("%d answers about %d keys", len(owners), q.to-q.from)
		}
		all = append(all, owners)
	}
	if len(all) != len(questions) {
		t.Fatalf("%d answers to %d questions", len(all), len(questions))
	}
	return all
}

// peer describes how one client is asked, and which questions it can answer.
type peer struct {
	ask asker
	// keys are of the kind that the client supports: "any" bytes that a key may have, or "utf8".
	keys string
	// slow clients are asked about each key once, not once for each list, and about few long keys.
	slow bool
	// most is the largest number of servers; 0 is 120.
	most int
	// host returns the i-th server's host; nil stands for a member's name.
	host func(i int) string
}

const python = "/usr/bin/python3" // Debian's, which sees Debian's packages

var (
	pythonLibraries = library{
		command: []string{python, "testdata/peer.py"},
		probe: []string{python, "-c", "import ctypes, pymemcache, memcache\n" +
			`ctypes.CDLL("libmemcached.so.11"); ctypes.CDLL("libxxhash.so.0")`},
		packages: []string{"python3", "libmemcached11", "libxxhash0", "python3-pymemcache", "python3-memcache"},
	}
	rubyLibraries = library{
		command:  []string{"/usr/bin/ruby", "testdata/peer.rb"},
		probe:    []string{"/usr/bin/ruby", "-e", "require 'dalli'"},
		packages: []string{"ruby", "ruby-dalli"},
	}
)

// peers are the clients that Debian or the Go module proxy has.
var peers = map[string]peer{
	"libmemcached": {ask: pythonLibraries.ask},
	// libmemcached aborts with a consistent ring of more than 100 servers.
	"libmemcached-ketama":          {ask: pythonLibraries.ask, most: 100},
	"libmemcached-ketama-weighted": {ask: pythonLibraries.ask, most: 100},
	"memcached-proxy":              {ask: pythonLibraries.ask},
	"pymemcache":                   {ask: pythonLibraries.ask, slow: true, host: shortName},
	"pymemcache-bytes":             {ask: pythonLibraries.ask, slow: true, host: shortName},
	"python-memcached":             {ask: pythonLibraries.ask},
	"dalli":                        {ask: rubyLibraries.ask},
	"spymemcached":                 {ask: askJava, keys: "utf8"},
	"spymemcached-ketama":          {ask: askJava, keys: "utf8", host: withAddress},
	"spymemcached-ketama-names":    {ask: askJava, keys: "utf8"},
	"evcache":                      {ask: askJava, keys: "utf8", host: withAddress},
	"gomemcache":                   {ask: askGomemcache, host: loopback},
}

func member(i int) string { return fmt.Sprintf("cache-%d.cache.default.svc.cluster.local", i) }

func shortName(i int) string { return fmt.Sprintf("cache-%d.svc", i) }

// withAddress returns a name with its address, as Java prints them.
func withAddress(i int) string { return fmt.Sprintf("%s/10.9.%d.%d", member(i), i%3, i+1) }

// loopback returns addresses, which need no name service. Their natural order isn't the list's.
func loopback(i int) string { return fmt.Sprintf("127.0.%d.%d", 3-i%3, i+1) }

// An item lands where the client library looks.
func TestOwnersMatchTheLibraries(t *testing.T) {
	for client, p := range peers {
		t.Run(client, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			most, sizes := manyKeys, allSizes
			if !tier.All() { // make test-all asks about more keys and lists
				most, sizes = fewKeys, fewSizes
			}
			keys := p.randomKeys(r, most)
			questions := p.questions(r, len(keys), sizes)
			compare(t, client, questions, keys, p.ask(t, client, questions, keys))
		})
	}
}

// manyKeys and fewKeys are how many keys a client is asked about in each list.
const manyKeys, fewKeys = 20_000, 500

func (p peer) randomKeys(r *rand.Rand, most int) [][]byte {
	if p.slow {
		return randomKeys(r, min(most, slowKeys), p.keys, 40)
	}
	return randomKeys(r, most, p.keys, maxKey)
}

// allSizes and fewSizes are the sizes of the lists.
var allSizes, fewSizes = []int{1, 2, 3, 5, 10, 25, 47, 50, 61, 94, 100, 120}, []int{3, 50}

// questions returns lists of servers with memcached's own port, which some clients leave out of names, with
// other ports, and with a mixture.
func (p peer) questions(r *rand.Rand, keys int, sizes []int) []question {
	most, host := p.most, p.host
	if most == 0 {
		most = 120
	}
	if host == nil {
		host = member
	}
	var questions []question
	from := 0
	for _, n := range sizes {
		if n > most {
			continue
		}
		for _, ports := range []string{"default", "other", "mixed"} {
			q := question{to: keys}
			if p.slow {
				q.from, q.to = from, from+min(slowShare(n), keys/len(sizes)/3)
				from = q.to
			}
			for i := range n {
				s := Server{Host: host(i), Port: DefaultPort}
				if ports == "other" || ports == "mixed" && r.IntN(2) == 0 {
					s.Port = uint16(1024 + r.IntN(60000))
				}
				q.servers = append(q.servers, s)
			}
			questions = append(questions, q)
		}
	}
	return questions
}

// slowShare returns how many keys a slow client is asked about for n servers; for all lists together these
// are slowKeys. The time of rendezvous hashing is proportional to keys times servers.
func slowShare(n int) int { return max(150, min(1300, 6000/n)) }

const slowKeys = 3 * (1300 + 1300 + 1300 + 1200 + 600 + 240 + 6*150)

// compare compares New(client) with the real client's answers, key by key.
func compare(t *testing.T, client string, questions []question, keys [][]byte, want [][]int) {
	t.Helper()
	for l, q := range questions {
		owner, err := New(client, q.servers)
		if err != nil {
			t.Fatal(err)
		}
		mismatches := 0
		for i, key := range keys[q.from:q.to] {
			if got := owner.Owner(key); got != want[l][i] {
				if mismatches++; mismatches <= 3 {
					t.Errorf("%d servers, key %q: owner %d, the client asks %d", len(q.servers), key, got, want[l][i])
				}
			}
		}
		if mismatches > 0 {
			t.Errorf("%d servers: %d of %d keys differ", len(q.servers), mismatches, q.to-q.from)
		}
	}
}

// maxKey is memcached's bound of a key, in bytes.
const maxKey = 250

// randomKeys returns keys of every kind that a client may use: short and long, ASCII, UTF-8 in and outside
// the basic plane, with quotes and hash stops, and, unless kind is "utf8", any bytes but those that end a key
// in the text protocol. Random keys have up to longest bytes, but every 64th has the maximum.
func randomKeys(r *rand.Rand, n int, kind string, longest int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		switch i % 8 {
		case 0:
			keys[i] = fmt.Appendf(nil, "user:%d:profile", r.IntN(1<<30))
		case 1:
			keys[i] = fmt.Appendf(nil, "schlüssel-%d-鍵-😀", r.IntN(1<<30))
		case 2:
			keys[i] = fmt.Appendf(nil, `it's-%d|#|"%d"\`, r.IntN(1<<30), r.IntN(1<<30))
		case 3:
			keys[i] = fmt.Appendf(nil, "o'%d", r.IntN(1<<30))
		default:
			end := 0x100
			if kind == "utf8" {
				end = 0x7f
			}
			length := 1 + r.IntN(longest)
			if longest < maxKey && i%64 == 7 {
				length = maxKey
			}
			k := make([]byte, length)
			for j := range k {
				k[j] = byte(0x21 + r.IntN(end-0x21))
			}
			keys[i] = k
		}
	}
	return keys
}

// askGomemcache asks gomemcache's own selector.
func askGomemcache(t *testing.T, _ string, questions []question, keys [][]byte) [][]int {
	t.Helper()
	all := make([][]int, len(questions))
	for l, q := range questions {
		var list memcache.ServerList
		var addresses []string
		index := map[string]int{}
		for i, s := range q.servers {
			addresses = append(addresses, s.Address())
			index[addresses[i]] = i
		}
		if err := list.SetServers(addresses...); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys[q.from:q.to] {
			addr, err := list.PickServer(string(k))
			if err != nil {
				t.Fatal(err)
			}
			all[l] = append(all[l], index[addr.String()])
		}
	}
	return all
}
