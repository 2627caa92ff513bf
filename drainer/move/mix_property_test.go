package move

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/volume"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// Items come from a memcached that has seen deletes, flushes and evictions. The items go to memcacheds with
// little memory (-m), without evictions (-M) or without CAS (-C), while a client stores, deletes and flushes.
// In a move, a drain and a replay,
//
//   - no server has a value that a client has replaced, deleted or flushed, except one whose newer value was
//     deleted, or evicted, before it arrived (docs/hazards.md),
//   - missing items were evicted or rejected, which the servers and the receipt report,
//   - a move that is refused has moved nothing.
func TestADrainLosesNothingWhateverClientsAndServersDo(t *testing.T) {
	tier.Second(t, "TestAMoveLosesNothingWhateverClientsDo")
	t.Parallel()
	for _, kind := range []string{"move", "streamed move", "leased move", "leased streamed move", "drain", "replay"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			drainertest.ForSeeds(t, 2, func(t *testing.T, seed uint64) { newMix(t, seed, kind).run() })
		})
	}
}

// mix is a source and the servers of its items.
type mix struct {
	t    *testing.T
	r    *rand.Rand
	kind string
	// leases means that it is a move under leases.
	leases bool
	// source is the first server of a move. volume is where a departed member has left its items.
	source  *memcachedtest.Server
	export  *Export
	volume  string
	servers []*memcachedtest.Server
	args    [][]string
	list    []routing.Server
	owner   routing.Owner
	keys    []*mixed
	flushes bool
	// flushed means that a client has flushed the servers.
	flushed bool
}

// mixed is a key of the mix.
type mixed struct {
	key    string
	owner  int
	latest int
	source int // the version that the source has, 0 for none
	// last is the client's last command at the owner, and acked the version of a set.
	last  string
	acked int
	// arrived means that the source's version was at the owner when it was deleted.
	arrived bool
	// flushed means that its owner was flushed after the source had it, and that nothing was stored after
	// that.
	flushed bool
}

const mixedBytes = 9000 // so that all values have the same slab class

func (k *mixed) value(version int) []byte {
	return append(fmt.Appendf(nil, "%d %s ", version, k.key), bytes.Repeat([]byte("x"), mixedBytes)...)
}

func newMix(t *testing.T, seed uint64, kind string) *mix {
	t.Helper()
	kind, leases := strings.CutPrefix(kind, "leased ")
	kind, streamed := strings.CutPrefix(kind, "streamed ")
	m := &mix{leases: leases, t: t, r: rand.New(rand.NewPCG(seed, 5)), kind: kind}
	m.flushes = m.r.IntN(4) == 0
	n := 1 + m.r.IntN(2)
	if kind == "replay" {
		n = 1
	}
	var addresses []string
	switch {
	case streamed:
		args := m.anyArgs(3, 9)
		mapped := memcachedtest.StartMapped(t, filepath.Join(t.TempDir(), contract.WarmFile), append(args, "-f", "4")...)
		m.servers, m.args = append(m.servers, mapped.Server), append(m.args, args)
		m.source, m.export = mapped.Server, &Export{Address: exporting(t, mapped), Client: "gomemcache"}
	case kind == "move":
		m.start(m.anyArgs(3, 2))
		m.source = m.servers[0]
	}
	for range n {
		m.start(m.anyArgs(4, 2))
	}
	for i, s := range m.servers {
		addresses = append(addresses, fmt.Sprintf("server-%d:11211=%s", i, s.Address()))
	}
	m.list = drainertest.MustParse(t, addresses)
	var err error
	if m.owner, err = routing.New("gomemcache", m.list); err != nil {
		t.Fatal(err)
	}
	m.fill()
	return m
}

func (m *mix) start(args []string) {
	m.servers = append(m.servers, memcachedtest.Start(m.t, args...))
	m.args = append(m.args, args)
}

// anyArgs returns random arguments, each with a probability of one in n, such as little MiB of memory.
func (m *mix) anyArgs(n, little int) []string {
	args := []string{"-t", "1", "-m", "64"}
	if m.r.IntN(n) == 0 {
		args[3] = strconv.Itoa(little + m.r.IntN(2))
		if m.r.IntN(2) == 0 {
			args = append(args, "-M")
		}
	}
	if m.r.IntN(n) == 0 {
		args = append(args, "-C")
	}
	return args
}

// fill lets clients use the source, and records its items in the end.
func (m *mix) fill() {
	m.t.Helper()
	if m.kind != "move" {
		m.volume = m.t.TempDir()
		// There are few slab classes, because each has a page from the beginning.
		args := append([]string{"-e", filepath.Join(m.volume, contract.WarmFile), "-o", "no_lru_crawler", "-f", "4"}, m.anyArgs(3, 9)...)
		m.source = memcachedtest.Start(m.t, args...)
		defer m.leave(args)
	}
	raw := m.source.Raw()
	for i := range 40 + m.r.IntN(360) {
		k := &mixed{key: fmt.Sprintf("key:%d:%x", i, m.r.Uint32())}
		k.owner = m.owner.Owner([]byte(k.key))
		m.keys = append(m.keys, k)
	}
	for range 2 * len(m.keys) {
		switch k := m.any(); m.r.IntN(12) {
		case 0:
			raw.Do("delete "+k.key, nil)
		default:
			k.latest++
			raw.Do(fmt.Sprintf("set %s 0 0 %d", k.key, len(k.value(k.latest))), k.value(k.latest))
		}
		if m.r.IntN(6*len(m.keys)) == 0 {
			raw.Must("OK", "flush_all", nil)
			m.source.WaitSecond(m.t) // items of the same second may count as flushed
		}
	}
	c := m.source.DialFor(m.t)
	for _, k := range m.keys {
		k.source = m.version(c, k)
	}
	if m.flushes {
		m.source.WaitSecond(m.t)
	}
}

// leave ends the source as a departed member.
func (m *mix) leave(args []string) {
	m.t.Helper()
	image := &warmfile.Image{}
	if err := image.Ask(m.source.Dial(), m.source.PID(), filepath.Join(m.volume, contract.WarmFile), args); err != nil {
		m.t.Fatal(err)
	}
	if m.r.IntN(2) == 0 {
		m.source.Save()
	} else {
		manifest := volume.Manifest{State: volume.Running, Image: image, BootID: volume.BootID()}
		b, err := manifest.Marshal()
		if err == nil {
			err = os.WriteFile(filepath.Join(m.volume, contract.Manifest), b, 0o600)
		}
		if err != nil {
			m.t.Fatal(err)
		}
		m.source.Kill()
	}
	if m.r.IntN(2) == 0 {
		m.volume = drainertest.Packed(m.t, m.volume)
	}
}

func (m *mix) any() *mixed { return m.keys[m.r.IntN(len(m.keys))] }

// version returns the version that a server has of a key, 0 for none.
func (m *mix) version(c *memcache.Conn, k *mixed) int {
	m.t.Helper()
	held, err := c.Get([]byte(k.key))
	if err != nil {
		m.t.Fatal(err)
	}
	if held == nil || m.leases && string(held.Data) == ringchange.LeaseValue {
		return 0
	}
	number, _, _ := strings.Cut(string(held.Data), " ")
	n, err := strconv.Atoi(number)
	if err != nil || !bytes.Equal(held.Data, k.value(n)) {
		m.t.Fatalf("%s has %.40q", k.key, held.Data)
	}
	return n
}

// has tells whether a server was started with an argument.
func (m *mix) has(server int, arg string) bool {
	return strings.Contains(strings.Join(m.args[server], " ")+" ", arg+" ")
}

func (m *mix) run() {
	m.t.Helper()
	done := make(chan contract.Receipt, 1)
	seed := m.r.Uint64()
	m.use(m.r, m.r.IntN(10)) // before
	go func() { done <- m.transfer(pace.Limit{Items: 500 + int64(seed%20_000)}) }()
	r := rand.New(rand.NewPCG(seed, 6))
	const most, between = 2000, time.Millisecond // the client's operations meanwhile
	for range most {
		select {
		case receipt := <-done:
			m.check(&receipt)
			return
		case <-time.After(between):
			m.use(r, 1)
		}
	}
	receipt := <-done
	m.check(&receipt)
}

// transfer makes the move, the drain or the replay.
func (m *mix) transfer(limit pace.Limit) contract.Receipt {
	if m.kind == "replay" {
		reader, err := volume.Open(m.volume, volume.Options{})
		if err != nil {
			return contract.Receipt{Message: err.Error()}
		}
		defer reader.Close()
		replay := Replay{Source: reader, Address: m.list[0].Address(), Silence: wait.Long, Log: io.Discard}
		receipt, err := replay.Run(m.t.Context(), m.t.Context())
		if err != nil {
			receipt.Message = err.Error()
		}
		return receipt
	}
	e := &Engine{SourceID: "the-claim", Owner: m.owner, Servers: m.list, Limit: limit, UnreachableTimeout: wait.Long, Log: io.Discard}
	if m.kind == "move" {
		var log drainertest.Buffer
		e.Export, e.Log, e.Leases = m.export, &log, m.leases
		defer func() {
			if text := log.String(); strings.Contains(text, "is asked for") {
				m.t.Errorf("the member is not read from its file: %s", text)
			}
		}()
		return e.MoveFrom(m.t.Context(), 0, m.t.TempDir(), 0)
	}
	source, err := volume.OpenAll(m.volume, false)
	if err != nil {
		return contract.Receipt{Message: err.Error()}
	}
	defer source.Close()
	e.Source = source
	return e.Run(m.t.Context())
}

// use makes n operations of a client.
func (m *mix) use(r *rand.Rand, n int) {
	m.t.Helper()
	for range n {
		k := m.keys[r.IntN(len(m.keys))]
		if m.servers[k.owner] == m.source {
			continue // the key stays where it is
		}
		c := m.servers[k.owner].DialFor(m.t)
		switch r.IntN(8) {
		case 0:
			k.latest++
			answer, err := ask(c, fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", k.key, len(k.value(k.latest)), k.value(k.latest)))
			if k.last, k.acked, k.flushed = "set", k.latest, false; err != nil || answer != "STORED" {
				k.last = "refused" // and the previous value may be gone
			}
		case 1:
			there := m.version(c, k)
			answer, err := ask(c, "delete "+k.key+"\r\n")
			if err != nil {
				m.t.Errorf("delete: %v", err)
			}
			k.arrived = answer == "DELETED" && there == k.source
			k.last = "delete"
		case 2:
			if m.flushes && r.IntN(10) == 0 {
				m.flush()
			}
		default:
			m.version(c, k)
		}
		_ = c.Close()
	}
}

// flush flushes all servers, as a person would.
func (m *mix) flush() {
	m.t.Helper()
	m.flushed = true
	for i, s := range m.servers {
		c := s.DialFor(m.t)
		if answer, err := ask(c, "flush_all\r\n"); err != nil || answer != "OK" {
			m.t.Errorf("flush_all: %q, %v", answer, err)
		}
		for _, k := range m.keys {
			if k.owner == i {
				k.flushed = true
			}
		}
	}
}

// check looks for all keys at their owners.
func (m *mix) check(receipt *contract.Receipt) {
	m.t.Helper()
	refused := receipt.Reason == reasonNoCAS
	switch without := m.kind == "move" && m.anyWithout(); {
	case refused != without:
		m.t.Errorf("some keep no CAS: %t, and it ends with %+v", without, receipt)
	case !refused && (!receipt.Complete || receipt.Failed > 0 || receipt.Reason != "" && receipt.Reason != reasonRejected):
		m.t.Errorf("it ends with %+v", receipt)
	}
	evicted := make([]bool, len(m.servers))
	var conns []*memcache.Conn
	for i, s := range m.servers {
		c := s.DialFor(m.t)
		stats, err := c.Stats("")
		if err != nil {
			m.t.Fatal(err)
		}
		evicted[i] = stats["evictions"] != "0"
		conns = append(conns, c)
	}
	missing := int64(0)
	for _, k := range m.keys {
		// A flush without CAS also removes items that are stored in the same second, and items that were
		// added meanwhile can't be taken back.
		if m.servers[k.owner] == m.source || m.flushed && m.has(k.owner, "-C") {
			continue
		}
		got := m.version(conns[k.owner], k)
		if wrong := m.wrong(k, got, refused, evicted[k.owner]); wrong != "" {
			m.t.Errorf("server %d %v has version %d of %s: %s (%+v)", k.owner, m.args[k.owner], got, k.key, wrong, *k)
		}
		still := m.kind == "move" && k.source > 0 && m.version(conns[0], k) == k.source
		if got == 0 && k.last == "" && !k.flushed && k.source > 0 && !evicted[k.owner] && !still {
			missing++
		}
		if got == 0 && k.last == "set" && !k.flushed && !evicted[k.owner] {
			m.t.Errorf("server %d %v has lost what a client stored: %+v", k.owner, m.args[k.owner], *k)
		}
		if refused && k.source > 0 && !m.flushed && !still {
			m.t.Errorf("the move was refused, and the member has lost %+v", *k)
		}
	}
	if missing > receipt.Rejected {
		m.t.Errorf("%d items are missing, and %d were rejected: %+v", missing, receipt.Rejected, receipt)
	}
	m.t.Logf("%s: %d keys, evictions %v, flushes %t: %s", m.kind, len(m.keys), evicted, m.flushes, receipt.Summary())
}

// anyWithout tells whether a server keeps no CAS.
func (m *mix) anyWithout() bool {
	for i := range m.servers {
		if m.has(i, "-C") {
			return true
		}
	}
	return false
}

// wrong returns why an owner must not have this version of a key.
func (m *mix) wrong(k *mixed, got int, refused, evicted bool) string {
	switch {
	case got == 0:
		return "" // see missing
	case k.flushed && got == k.source && k.last == "":
		return "a client has flushed it"
	case k.last == "set" && got != k.acked && (got != k.source || !evicted):
		return "a client has stored another one since"
	case k.last == "delete" && (got != k.source || k.arrived):
		return "a client has deleted it"
	case k.last == "" && (got != k.source || refused):
		return "no client has stored it there"
	}
	return ""
}
