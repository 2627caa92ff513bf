package cli_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

var printTable = flag.Bool("print-table", false, "print the table of docs/performance.md")

// steps are sizes that an autoscaler could choose after three members.
var steps = []int{5, 2, 3, 2}

// reshufflers are clients whose keys move in all ways: between any two servers at every change, and to and
// from the server that comes or goes.
var reshufflers = []string{"gomemcache", "libmemcached-ketama-weighted"}

// The table in docs/performance.md has the hit ratios that a client gets after each scaling with drains alone.
// With drains and moves, the client finds everything, and nothing old.
func TestDocumentedHitRatios(t *testing.T) {
	tier.Second(t, "TestDocumentedHitRatiosAreThoseOfTheRings")
	columns := make([][]column, 2*len(reshufflers))
	t.Run("", func(t *testing.T) {
		for i := range columns {
			client, moved := reshufflers[i/2], i%2 == 1
			t.Run(fmt.Sprintf("%s, moved %v", client, moved), func(t *testing.T) {
				t.Parallel()
				s := newScalings(t, client, moved, tableKeys)
				for n, size := range steps {
					s.scale(size)
					found, old := s.look()
					columns[i] = append(columns[i], column{found, old})
					for k := n; k < tableKeys; k += 10 {
						s.store(k)
					}
				}
			})
		}
	})
	expectDocumented(t, columns)
}

// The table in docs/performance.md follows from the rings, if a drain adds a leaving member's items at their
// owners, and a move also deletes them here. TestScalingsUnderLoad shows that drains and moves do so.
func TestDocumentedHitRatiosAreThoseOfTheRings(t *testing.T) {
	t.Parallel()
	columns := make([][]column, 2*len(reshufflers))
	for i := range columns {
		client, moved := reshufflers[i/2], i%2 == 1
		owners := func(n int) (of [tableKeys]int) {
			var named []string
			for i := range n {
				named = append(named, fmt.Sprintf("cache-%d.cache:11211=127.0.0.1:%d", i, i+1))
			}
			owner, err := routing.New(client, drainertest.MustParse(t, named))
			if err != nil {
				t.Fatal(err)
			}
			for k := range of {
				of[k] = owner.Owner([]byte("key:" + strconv.Itoa(k)))
			}
			return of
		}
		members := make([]map[int]int, 3) // for each member, the version of each key that it has
		for m := range members {
			members[m] = map[int]int{}
		}
		var last [tableKeys]int
		store := func(of [tableKeys]int, k int) {
			last[k]++
			members[of[k]][k] = last[k]
		}
		of := owners(3)
		for k := range tableKeys {
			store(of, k)
		}
		for n, size := range steps {
			before := len(members)
			of = owners(size)
			give := func(from map[int]int, leaves func(k int) bool) {
				for k, version := range from {
					if !leaves(k) {
						continue
					}
					delete(from, k)
					if _, there := members[of[k]][k]; !there {
						members[of[k]][k] = version
					}
				}
			}
			for len(members) < size {
				members = append(members, map[int]int{})
			}
			for len(members) > size {
				leaves := members[len(members)-1]
				members = members[:len(members)-1]
				give(leaves, func(int) bool { return true })
			}
			for m := 0; moved && m < min(before, size); m++ {
				give(members[m], func(k int) bool { return of[k] != m })
			}
			var c column
			for k := range tableKeys {
				if version, there := members[of[k]][k]; there {
					c.found++
					if version < last[k] {
						c.old++
					}
				}
			}
			columns[i] = append(columns[i], c)
			for k := n; k < tableKeys; k += 10 {
				store(of, k)
			}
		}
	}
	expectDocumented(t, columns)
}

// tableKeys is how many keys the table in docs/performance.md is about. A column has, for one step, how many
// of them are found, and how many of these are old.
const tableKeys = 5_000

type column struct{ found, old int }

// expectDocumented compares the columns without moves with the table in docs/performance.md. With moves,
// every key is found, and none is old.
func expectDocumented(t *testing.T, columns [][]column) {
	t.Helper()
	const keys = tableKeys
	var table strings.Builder
	from := 3
	for n, size := range steps {
		fmt.Fprintf(&table, "| %d to %d |", from, size)
		for i := range columns {
			if len(columns[i]) <= n {
				t.Fatal("there is no complete table")
			}
			c, moved := columns[i][n], i%2 == 1
			switch {
			case !moved:
				fmt.Fprintf(&table, " %.1f | %.1f |", 100*float64(c.found)/keys, 100*float64(c.old)/keys)
			case c != (column{found: keys}):
				t.Errorf("%s, to %d members: %d of %d are found, %d of them old", reshufflers[i/2], size, c.found, keys, c.old)
			}
		}
		table.WriteString("\n")
		from = size
	}
	if *printTable {
		fmt.Print(table.String())
	}
	const path = "../../docs/performance.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), table.String()) {
		t.Errorf("%s does not have this (run with -print-table):\n%s", path, table.String())
	}
}

// While clients read and write all the time, the cluster is scaled at random moments, and survivors crash. No
// read finds a value older than the last acknowledged one, and after each step every item is found.
func TestScalingsUnderLoad(t *testing.T) {
	t.Parallel()
	seeds, sizes := 1, []int{4, 2}
	if tier.All() {
		seeds, sizes = 2*len(reshufflers), steps
	}
	first := rand.Uint64()
	for i := range seeds {
		seed, client := first+uint64(i), reshufflers[i%len(reshufflers)]
		t.Run(fmt.Sprintf("%s, seed %d", client, seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			s := newScalings(t, client, true, 300)
			stop := s.load(r.Uint64())
			for _, size := range sizes {
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // to a random moment
				back := s.crash(r.IntN(2), time.Duration(r.IntN(2000))*time.Millisecond)
				s.scale(size)
				back()
				s.lock.Lock()
				if found, old := s.look(); found != len(s.versions) || old > 0 {
					t.Errorf("at %d members %d of %d are found, %d of them old", size, found, len(s.versions), old)
				}
				s.lock.Unlock()
			}
			stop()
		})
	}
}

// scalings is a cluster of members under their supervisors, and an application that uses a client library.
type scalings struct {
	t       *testing.T
	client  string
	moved   bool
	members []*drainertest.Served
	exports []int // the ports where the members stream their items
	ring    atomic.Pointer[ring]
	library *gomemcache.Client
	// versions are the last acknowledged versions, by key. A client holds lock for reading while it reads or
	// writes and the list of servers may change.
	versions []atomic.Int64
	lock     sync.RWMutex
}

// ring is the list of servers that the client has.
type ring struct {
	named     []string
	addresses []net.Addr
	owner     routing.Owner
}

// PickServer is a part of the client library's interface of a selector.
func (s *scalings) PickServer(key string) (net.Addr, error) {
	now := s.ring.Load()
	return now.addresses[now.owner.Owner([]byte(key))], nil
}

// Each is a part of the client library's interface of a selector.
func (s *scalings) Each(do func(net.Addr) error) error {
	for _, address := range s.ring.Load().addresses {
		if err := do(address); err != nil {
			return err
		}
	}
	return nil
}

func newScalings(t *testing.T, client string, moved bool, keys int) *scalings {
	t.Helper()
	s := &scalings{t: t, client: client, moved: moved, versions: make([]atomic.Int64, keys)}
	s.library = gomemcache.NewFromSelector(s)
	s.library.Timeout, s.library.MaxIdleConns = wait.Long, 4
	t.Cleanup(func() { _ = s.library.Close() })
	s.scale(3)
	for k := range keys {
		s.store(k)
	}
	return s
}

// list gives the clients a list of the first n members.
func (s *scalings) list(n int) {
	s.t.Helper()
	next := &ring{}
	for i, m := range s.members[:n] {
		next.named = append(next.named, fmt.Sprintf("cache-%d.cache:11211=%s", i, m.Address()))
		next.addresses = append(next.addresses, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: m.Port})
	}
	var err error
	if next.owner, err = routing.New(s.client, drainertest.MustParse(s.t, next.named)); err != nil {
		s.t.Fatal(err)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.ring.Store(next)
}

// scale scales as the operator does. New members start before the clients' list has them. Members leave after
// the list has changed; a volume is drained when its member is gone. Then the moves between the others
// follow, if moved is set.
func (s *scalings) scale(n int) {
	s.t.Helper()
	before := len(s.members)
	for len(s.members) < n {
		dir, port := s.t.TempDir(), memcachedtest.FreePort(s.t)
		if len(s.exports) == len(s.members) {
			s.exports = append(s.exports, memcachedtest.FreePort(s.t))
		}
		s.members = append(s.members, s.serve(len(s.members), dir, port))
	}
	s.list(n)
	for len(s.members) > n {
		last := len(s.members) - 1
		leaves := s.members[last]
		s.members = s.members[:last]
		leaves.End("saved")
		m := drainertest.DrainArgs(s.t, leaves.Dir, s.ring.Load().named)
		m.Client = s.client
		if r := drainertest.Drain(s.t, m); r.Receipt.AddsUp(m.SourceID) != nil {
			s.t.Fatalf("member %d: %+v", last, r.Receipt)
		}
	}
	if !s.moved {
		return
	}
	for i := range min(before, n) {
		named := s.ring.Load().named
		a := drainertest.MoveArgs(s.t, s.client, named[i], named)
		if i%2 == 0 { // the others have their items listed
			a.ExportPort = int32(s.exports[i])
		}
		r := drainertest.Move(s.t, a)
		if r.Receipt.Reason == "SourceRestarted" { // the source crashed, and its Job begins again
			r = drainertest.Move(s.t, a)
		}
		if r.Receipt.AddsUp(a.SourceID) != nil {
			s.t.Fatalf("member %d: %+v", i, r.Receipt)
		}
	}
}

// serve starts a member that streams its items.
func (s *scalings) serve(i int, dir string, port int) *drainertest.Served {
	s.t.Helper()
	serve := drainertest.MemberArgs(contract.Connection{}, dir, port, "-m", "64")
	serve.ExportPort = int32(s.exports[i])
	return drainertest.SuperviseCommand(s.t, "", serve)
}

// crash kills a member's memcached after a while, and starts the member again, as a kubelet does. crash
// returns a function that waits until the member's items are back.
func (s *scalings) crash(i int, after time.Duration) (back func()) {
	member := s.members[i]
	var returns sync.WaitGroup
	returns.Go(func() {
		time.Sleep(after)
		member.KillMemcached()
		member = s.serve(i, member.Dir, member.Port)
		drainertest.ExpectGenerations(s.t, member.Dir)
	})
	s.t.Cleanup(returns.Wait)
	return func() {
		returns.Wait()
		s.members[i] = member
	}
}

// store stores the next version of a key, and retries while its member is away.
func (s *scalings) store(k int) {
	next := s.versions[k].Load() + 1
	value := strconv.AppendInt(nil, next, 10)
	item := &gomemcache.Item{Key: "key:" + strconv.Itoa(k), Value: append(value, bytes.Repeat([]byte{' '}, 50)...)}
	err := s.library.Set(item)
	for end := wait.Deadline(); err != nil && time.Now().Before(end); err = s.library.Set(item) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		s.t.Errorf("store key %d: %v", k, err)
		return
	}
	s.versions[k].Store(next)
}

// read returns the version of a key that is found, 0 for none, and the version that should be found.
func (s *scalings) read(k int) (got, want int64, err error) {
	want = s.versions[k].Load()
	item, err := s.library.Get("key:" + strconv.Itoa(k))
	if errors.Is(err, gomemcache.ErrCacheMiss) {
		return 0, want, nil
	}
	if err == nil {
		got, err = strconv.ParseInt(string(bytes.TrimSpace(item.Value)), 10, 64)
	}
	return got, want, err
}

// look counts the keys that are found, and those among them with an old value.
func (s *scalings) look() (found, old int) {
	for k := range s.versions {
		got, want, err := s.read(k)
		if err != nil {
			s.t.Errorf("read key %d: %v", k, err)
		}
		if got > 0 {
			found++
		}
		if got > 0 && got < want {
			old++
		}
	}
	return found, old
}

// load reads and writes until stop is called. Each of its clients has its own keys.
func (s *scalings) load(seed uint64) (stop func()) {
	const clients = 2
	var ended atomic.Bool
	var all sync.WaitGroup
	for n := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		all.Go(func() {
			for !ended.Load() {
				s.lock.RLock()
				k := n + clients*r.IntN(len(s.versions)/clients)
				if r.IntN(10) == 0 {
					s.store(k)
				} else if got, want, err := s.read(k); err == nil && got > 0 && got != want {
					s.t.Errorf("version %d of key %d is read, %d was acknowledged", got, k, want)
				}
				s.lock.RUnlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		ended.Store(true)
		all.Wait()
	})
	s.t.Cleanup(stop)
	return stop
}
