package move

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// Clients with an old list store, overwrite, append, increment, touch, delete and flush at a member whose
// items are moved, while it evicts and its slab mover moves. In the end the member has none of their items,
// and the owners
//
//   - have the last value of each, unless it was deleted, flushed or evicted,
//   - have no value that was deleted or flushed before it was moved; an earlier one that was moved may be
//     there then (docs/hazards.md),
//   - have no value that the key never had.
func TestAMoveLosesNothingWhateverClientsDo(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"listed", "streamed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			drainertest.ForSeeds(t, 2, func(t *testing.T, seed uint64) { newFormer(t, seed, kind == "streamed").run() })
		})
	}
}

// former is a member whose clients have an old list.
type former struct {
	t      *testing.T
	r      *rand.Rand
	member *memcachedtest.Server
	owners []*memcachedtest.Server
	engine *Engine
	log    drainertest.Buffer
	keys   []*stored
	// flushes means that clients flush, slabMoves that they make the slab mover move.
	flushes, slabMoves bool

	// flushing excludes all other commands during a flush.
	flushing sync.RWMutex
}

// stored is a key of one client.
type stored struct {
	key   string
	owner int
	// last is the value of the last command that stored one, and had are all such values. The member has the
	// last one, or none.
	last string
	had  map[string]bool
	// dead are values that were deleted or flushed at the member. For last this may be unknown.
	dead    map[string]bool
	unknown bool
}

const (
	oldClients, keysOfOne = 2, 150
	// commands of each client, and how long it rests after so many.
	commands, atATime, rest = 600, 20, 10 * time.Millisecond
)

func newFormer(t *testing.T, seed uint64, streamed bool) *former {
	t.Helper()
	f := &former{t: t, r: rand.New(rand.NewPCG(seed, 11))}
	f.flushes, f.slabMoves = f.r.IntN(3) == 0, f.r.IntN(2) == 0
	memory := []string{"9", "32"}[f.r.IntN(2)] // the first is a third of what the items take
	mapped := startMapped(t, "-f", "4", "-m", memory, "-t", "2", "-o", "slab_automove=0")
	f.member = mapped.Server
	var addresses []string
	for range 1 + f.r.IntN(2) {
		s := memcachedtest.Start(t, "-m", "128", "-t", "2")
		f.owners, addresses = append(f.owners, s), append(addresses, s.Address())
	}
	list := drainertest.MustParse(t, addresses)
	owner, err := routing.New("gomemcache", list)
	if err != nil {
		t.Fatal(err)
	}
	f.engine = &Engine{SourceID: "the-claim", Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: &f.log,
		Limit: pace.Limit{Items: 500 + f.r.Int64N(20_000)}}
	if streamed {
		f.engine.Export = &Export{Address: exporting(t, mapped), Client: "gomemcache"}
	}
	for i := range oldClients * keysOfOne {
		k := &stored{key: fmt.Sprintf("key:%d", i), had: map[string]bool{}, dead: map[string]bool{}}
		k.owner = owner.Owner([]byte(k.key))
		f.keys = append(f.keys, k)
	}
	return f
}

func (f *former) run() {
	f.t.Helper()
	var clients []*oldClient
	for n := range oldClients {
		c := &oldClient{former: f, raw: f.member.Raw(), r: rand.New(rand.NewPCG(f.r.Uint64(), 12)), keys: f.keys[n*keysOfOne : (n+1)*keysOfOne]}
		for _, k := range c.keys {
			c.set(k)
		}
		clients = append(clients, c)
	}
	var work sync.WaitGroup
	for _, c := range clients {
		work.Go(func() {
			for n := range commands {
				if c.do(); n%atATime == 0 {
					time.Sleep(rest)
				}
			}
		})
	}
	source := drainertest.MustParse(f.t, []string{f.member.Address()})[0]
	receipt := f.engine.MoveFromLeaving(f.t.Context(), source, f.t.TempDir(), wait.Long)
	work.Wait()
	f.check(&receipt)
}

func (f *former) check(receipt *contract.Receipt) {
	f.t.Helper()
	if err := receipt.AddsUp("the-claim"); err != nil || !receipt.Complete {
		f.t.Errorf("%v: %+v", err, receipt)
	}
	if text := f.log.String(); strings.Contains(text, "is asked for") {
		f.t.Errorf("the member is not read from its file: %s", text)
	}
	stats, err := f.member.Dial().Stats("")
	if err != nil {
		f.t.Fatal(err)
	}
	// The slab mover drops items for which it finds no place, or that are busy for too long.
	evicted, changed := false, 0
	for _, name := range []string{"evictions", "slab_reassign_evictions_nomem", "slab_reassign_busy_deletes"} {
		evicted = evicted || stats[name] != "0"
	}
	for _, k := range f.keys {
		if got := f.at(f.member, k); got != "" {
			f.t.Errorf("the member still has %.40q of %s", got, k.key)
		}
		got := f.at(f.owners[k.owner], k)
		if wrong := k.wrong(got, evicted); wrong != "" {
			f.t.Errorf("the owner has %.40q (%d bytes) of %s, whose last value is %.40q (%d bytes): %s", got, len(got), k.key, k.last, len(k.last), wrong)
		}
		changed += len(k.had)
	}
	f.t.Logf("%d values, flushes %t, evicted %t, %s items and %s pages moved: %s", changed, f.flushes,
		evicted, stats["slab_reassign_rescues"], stats["slabs_moved"], receipt.Summary())
}

// wrong returns why the owner must not have this value of a key, "" if it may.
func (k *stored) wrong(got string, evicted bool) string {
	gone := evicted || k.unknown || k.dead[k.last]
	switch {
	case got == "" && !gone:
		return "it is lost"
	case got == "":
		return ""
	case k.dead[got]:
		return "a client has deleted or flushed it"
	case !k.had[got]:
		return "it never had that"
	case got != k.last && !gone:
		return "it is an earlier one"
	}
	return ""
}

// at returns a server's value of a key, without spaces, because incr fills some values up with them.
func (f *former) at(s *memcachedtest.Server, k *stored) string {
	f.t.Helper()
	c := s.DialFor(f.t)
	defer c.Close()
	v, err := c.Get([]byte(k.key))
	if err != nil {
		f.t.Fatal(err)
	}
	if v == nil {
		return ""
	}
	return strings.ReplaceAll(string(v.Data), " ", "")
}

// oldClient has its own keys, and only calls the member.
type oldClient struct {
	*former
	raw   *memcachedtest.Raw
	r     *rand.Rand
	keys  []*stored
	count int
}

func (c *oldClient) do() {
	c.flushing.RLock()
	defer c.flushing.RUnlock()
	k := c.keys[c.r.IntN(len(c.keys))]
	switch n := c.r.IntN(100); {
	case n < 35:
		c.set(k)
	case n < 50:
		c.append(k)
	case n < 70:
		c.add(k)
	case n < 76:
		c.expect(c.raw.Do("touch "+k.key+" 5000", nil), "TOUCHED", "NOT_FOUND")
	case n < 88:
		if c.expect(c.raw.Do("delete "+k.key, nil), "DELETED", "NOT_FOUND") == "DELETED" {
			k.dead[k.last] = true
		}
	case n < 92 && c.slabMoves:
		c.raw.Do(fmt.Sprintf("slabs reassign %d %d", 1+c.r.IntN(8), 1+c.r.IntN(8)), nil)
	case n < 93 && c.flushes && c.r.IntN(10) == 0:
		c.flushing.RUnlock()
		c.flush()
		c.flushing.RLock()
	}
}

// expect checks that got is one of these answers.
func (c *oldClient) expect(got string, answers ...string) string {
	for _, want := range answers {
		if strings.HasPrefix(got, want) {
			return want
		}
	}
	c.t.Errorf("%q, want one of %q", got, answers)
	return ""
}

func (k *stored) has(value string) {
	k.last, k.unknown = strings.ReplaceAll(value, " ", ""), false
	k.had[k.last] = true
}

// set stores a number, or a text, that no key has had before.
func (c *oldClient) set(k *stored) {
	c.count++
	value := strconv.Itoa(c.count * 1000)
	if c.r.IntN(3) > 0 {
		value += " " + k.key + strings.Repeat(string(rune('a'+c.r.IntN(26))), []int{10, 1000, 60_000}[c.r.IntN(3)])
	}
	if c.expect(c.raw.Do(fmt.Sprintf("set %s 0 0 %d", k.key, len(value)), []byte(value)), "STORED", "SERVER_ERROR") == "STORED" {
		k.has(value)
	} else {
		k.unknown = true // the previous value is gone
	}
}

func (c *oldClient) append(k *stored) {
	c.count++
	more := fmt.Sprintf("+%d", c.count)
	switch c.expect(c.raw.Do(fmt.Sprintf("append %s 0 0 %d", k.key, len(more)), []byte(more)), "STORED", "NOT_STORED", "SERVER_ERROR") {
	case "STORED":
		k.has(k.last + more)
	case "SERVER_ERROR":
		k.unknown = true
	}
}

// add increments, in the item's own place or not.
func (c *oldClient) add(k *stored) {
	answer := c.raw.Do("incr "+k.key+" 1", nil)
	if _, err := strconv.Atoi(answer); err == nil {
		k.has(answer)
	} else {
		c.expect(answer, "NOT_FOUND", "CLIENT_ERROR", "SERVER_ERROR")
	}
}

// flush flushes the member. Items that it had, and that the owner doesn't have right after, were not moved
// before, and must not be at the owner later.
func (c *oldClient) flush() {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	var there []*stored
	for _, k := range c.former.keys {
		if c.at(c.member, k) != "" {
			there = append(there, k)
		}
	}
	c.raw.Must("OK", "flush_all", nil)
	for _, k := range there {
		if c.at(c.owners[k.owner], k) != k.last {
			k.dead[k.last] = true
		} else {
			k.unknown = true
		}
	}
}
