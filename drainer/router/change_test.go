package router_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

var pause = flag.Duration("router.pause", 0, "how long one router is behind the other in each state of a ring change, at least")

// app is an application of two routers: each request goes to one of them at random.
type app struct {
	t        *testing.T
	name     string
	random   *rand.Rand
	routers  []*conversation
	requests *atomic.Int64
	stop     *atomic.Bool
	// values are the application's values, by key; no other application changes these keys. "" is none.
	values map[string]string
}

// do sends a request, and fails the test if the answer isn't want.
func (a *app) do(text, want string) error {
	if got := a.ask(text); got != want {
		return fmt.Errorf("%s: %.80q: %.200q, want %.200q", a.name, text, got, want)
	}
	return nil
}

func (a *app) ask(text string) string {
	defer a.requests.Add(1)
	return a.routers[a.random.IntN(len(a.routers))].ask(text)
}

// own uses a key that no other application changes: it always reads its last written value.
func (a *app) own(version int) error {
	key := fmt.Sprintf("%s-%d", a.name, a.random.IntN(60))
	value, want := a.values[key], func(found, missing string) string {
		if a.values[key] == "" {
			return missing
		}
		return found
	}
	read := want(fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(value), value), "END\r\n")
	switch a.random.IntN(12) {
	case 0, 1:
		a.values[key] = strconv.Itoa(version)
		return a.do(fmt.Sprintf("set %s 0 0 %d\r\n%d\r\n", key, len(a.values[key]), version), "STORED\r\n")
	case 2:
		answer := want("DELETED\r\n", "NOT_FOUND\r\n")
		a.values[key] = ""
		return a.do("delete "+key+"\r\n", answer)
	case 3:
		answer := want("NOT_STORED\r\n", "STORED\r\n")
		if value == "" {
			a.values[key] = "7"
		}
		return a.do("add "+key+" 0 0 1\r\n7\r\n", answer)
	case 4:
		n, _ := strconv.Atoi(value)
		answer := want(strconv.Itoa(n+1)+"\r\n", "NOT_FOUND\r\n")
		if value != "" {
			a.values[key] = strconv.Itoa(n + 1)
		}
		return a.do("incr "+key+" 1\r\n", answer)
	case 5:
		answer := want("STORED\r\n", "NOT_STORED\r\n")
		if value != "" && len(value) < 15 {
			a.values[key] = value + "1"
			return a.do("append "+key+" 0 0 1\r\n1\r\n", answer)
		}
	case 6:
		answer := want("TOUCHED\r\n", "NOT_FOUND\r\n")
		return a.do("touch "+key+" 1000\r\n", answer)
	case 7:
		return a.do("mg "+key+" v\r\n", want(fmt.Sprintf("VA %d\r\n%s\r\n", len(value), value), "EN\r\n"))
	case 8:
		// Requests that are sent at once are answered in order.
		a.values[key] = strconv.Itoa(version)
		text := fmt.Sprintf("get %s\r\nset %s 0 0 %d\r\n%d\r\nget %s\r\n", key, key, len(a.values[key]), version, key)
		return a.do(text, read+"STORED\r\n"+fmt.Sprintf("VALUE %s 0 %d\r\n%d\r\nEND\r\n", key, len(a.values[key]), version))
	}
	return a.do("get "+key+"\r\n", read)
}

// common has the counters and locks that all applications use.
type common struct {
	counted [20]atomic.Int64
	locked  [20]atomic.Int64
}

func (a *app) share(c *common) error {
	i := a.random.IntN(len(c.counted))
	if a.random.IntN(2) == 0 {
		if got := a.ask(fmt.Sprintf("incr counter-%d 1\r\n", i)); got == "NOT_FOUND\r\n" || strings.Contains(got, "ERROR") {
			return fmt.Errorf("%s: incr counter-%d: %q", a.name, i, got)
		}
		c.counted[i].Add(1)
		return nil
	}
	lock := fmt.Sprintf("lock-%d", i)
	switch got := a.ask("add " + lock + " 0 0 1\r\nx\r\n"); got {
	case "NOT_STORED\r\n":
		return nil
	case "STORED\r\n":
	default:
		return fmt.Errorf("%s: add %s: %q", a.name, lock, got)
	}
	if n := c.locked[i].Add(1); n != 1 {
		return fmt.Errorf("%d have %s", n, lock)
	}
	c.locked[i].Add(-1)
	return a.do("delete "+lock+"\r\n", "DELETED\r\n")
}

func (a *app) run(c *common) error {
	for version := 1; !a.stop.Load(); version++ {
		err := a.own(version)
		if err == nil && version%3 == 0 {
			err = a.share(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The cluster goes from 3 to 2 to 3 members under applications that know their own values exactly, through
// two routers that learn of each state at different times. There is no miss, no old value, no error, no lost
// increment, and no lock has two holders. Keys move because they are read, or because movers move them.
func TestARingChangeThroughTwoRoutersIsNotSeen(t *testing.T) {
	t.Parallel()
	for _, movers := range []bool{false, true} {
		t.Run(fmt.Sprintf("movers=%v", movers), func(t *testing.T) {
			if !movers {
				tier.Second(t, "TestARingChangeThroughTwoRoutersIsNotSeen")
			}
			t.Parallel()
			ringChange(t, movers)
		})
	}
}

func ringChange(t *testing.T, movers bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	all := members(t, 3)
	routers := []*running{start(t, router.Config{}, all...), start(t, router.Config{}, all...)}
	var requests atomic.Int64
	var stop atomic.Bool
	connect := func(name string, i uint64) *app {
		a := &app{t: t, name: name, random: rand.New(rand.NewPCG(seed, i)), requests: &requests, stop: &stop, values: map[string]string{}}
		for _, r := range routers {
			a.routers = append(a.routers, dial(t, r.address))
		}
		return a
	}
	var c common
	for i := range c.counted {
		connect("first", 0).ask(fmt.Sprintf("set counter-%d 0 0 1\r\n0\r\n", i))
	}
	const applications = 6
	failed := make([]error, applications)
	var running sync.WaitGroup
	for i := range failed {
		a := connect(fmt.Sprintf("app%d", i), uint64(i+1))
		running.Go(func() { failed[i] = a.run(&c); stop.Store(failed[i] != nil || stop.Load()) })
	}
	// So many requests begin and end before the next change.
	more := func() {
		before := requests.Load()
		wait.For(t, "requests", func() error {
			if requests.Load() < before+100 && !stop.Load() {
				return errors.New("there are too few")
			}
			return nil
		})
	}
	three, two := ring(t, all...), ring(t, all[:2]...)
	sweeper := connect("sweeper", 99)
	number := int64(0)
	for _, rings := range [][2]router.Ring{{three, two}, {two, three}} {
		for state := ringchange.Prepare; state <= ringchange.Finish+1; state++ {
			table := &router.Table{State: state, Old: rings[0], New: rings[1]}
			if state > ringchange.Finish {
				table = &router.Table{New: rings[1]}
			}
			number++
			table.Number = number
			for _, r := range routers {
				more()
				time.Sleep(*pause)
				if err := r.Apply(table); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range routers {
				wait.For(t, fmt.Sprintf("state %v", table.State), func() error { return acknowledged(r, number) })
			}
			more()
			if table.State == ringchange.Move {
				if movers {
					moveAll(t, all, rings[1])
				} else {
					sweeper.sweep(applications)
				}
				if len(rings[1].Servers) == 2 {
					wait.For(t, "the leaving member to be empty", func() error {
						if n := all[2].Items(t); n > 0 {
							return fmt.Errorf("it has %d items", n)
						}
						return nil
					})
				}
			}
		}
	}
	stop.Store(true)
	running.Wait()
	for _, err := range failed {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range c.counted {
		want := strconv.FormatInt(c.counted[i].Load(), 10)
		if got := sweeper.ask(fmt.Sprintf("get counter-%d\r\n", i)); got != fmt.Sprintf("VALUE counter-%d 0 %d\r\n%s\r\nEND\r\n", i, len(want), want) {
			t.Errorf("counter %d: %q, want %s", i, got, want)
		}
	}
	t.Logf("%d requests", requests.Load())
}

// sweep reads everything, and so moves it. sweep reads more than once, because the number of simultaneous
// moves is bounded.
func (a *app) sweep(applications int) {
	for range 20 {
		for i := range applications {
			for k := range 60 {
				a.ask(fmt.Sprintf("get app%d-%d\r\n", i, k))
			}
		}
		for i := range 20 {
			a.ask(fmt.Sprintf("get counter-%d lock-%d\r\n", i, i))
		}
	}
}

// Without leases a router moves no key: it and the Job would take each other's copies back.
func TestARouterMovesNoKeyThatDirectClientsUse(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{}, all[0])
	c := dial(t, r.address)
	c.want("set key 0 0 1\r\nv\r\n", "STORED\r\n")
	enter(t, r, &router.Table{Number: 1, State: ringchange.Move, Old: ring(t, all[0]), New: ring(t, all[1]), Shared: true})
	for range 50 { // a move is four steps, beside which the next reads go on
		c.want("get key\r\n", "VALUE key 0 1\r\nv\r\nEND\r\n")
	}
	if before, after := all[0].Items(t), all[1].Items(t); before != 1 || after != 0 {
		t.Errorf("%d items at the old owner, %d at the new", before, after)
	}
}

// A key in base64 stands for the decoded bytes, also when its lease is taken.
func TestAKeyInBase64IsMadeAndMovedAsAnyOther(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{}, all[0])
	c := dial(t, r.address)
	c.want("ms AAEC 2 b\r\nv1\r\n", "HD\r\n")
	enter(t, r, &router.Table{Number: 1, State: ringchange.Move, Old: ring(t, all[0]), New: ring(t, all[1])})
	c.want("ms AAEC 2 b ME\r\nv2\r\n", "NS\r\n")
	c.want("ms AAED 2 b ME\r\nv3\r\n", "HD\r\n")
	c.want("ma AAEE b N0 J5 v\r\n", "VA 1\r\n5\r\n")
	wait.For(t, "the key to be moved", func() error {
		c.want("mg AAEC b v\r\n", "VA 2\r\nv1\r\n")
		if before, after := all[0].Items(t), all[1].Items(t); before != 0 || after != 3 {
			return fmt.Errorf("%d items at the old owner, %d at the new", before, after)
		}
		return nil
	})
	c.want("mg AAEC v\r\n", "EN\r\n")
}

// Values of the size of a lease's, and the same one in an item that doesn't expire as soon, are read, changed and moved
// like any other, at both owners.
func TestAValueOfTheSizeOfALeaseIsNone(t *testing.T) {
	t.Parallel()
	next := map[string]string{"18446744073709551614": "18446744073709551615", ringchange.LeaseValue: "18364758544493064721"}
	for i := range 2 * (ringchange.Finish - ringchange.Prepare + 1) {
		state, number := ringchange.Prepare+i/2, slices.Sorted(maps.Keys(next))[i%2]
		t.Run(state.String()+"/"+number, func(t *testing.T) {
			t.Parallel()
			all := members(t, 2)
			r := start(t, router.Config{}, all...)
			for _, name := range []string{"old", "new"} {
				at := all[map[string]int{"old": 0, "new": 1}[name]].Raw()
				if name == "old" && state == ringchange.Finish {
					continue
				}
				for i := range 8 {
					at.Must("STORED", fmt.Sprintf("set %s%d 0 0 20", name, i), []byte(number))
				}
			}
			enter(t, r, &router.Table{Number: 1, State: state, Old: ring(t, all[0]), New: ring(t, all[1])})
			c := dial(t, r.address)
			for _, name := range []string{"old", "new"} {
				if name == "old" && state == ringchange.Finish {
					continue
				}
				c.want("get "+name+"0\r\n", "VALUE "+name+"0 0 20\r\n"+number+"\r\nEND\r\n")
				c.want("mg "+name+"1 v\r\n", "VA 20\r\n"+number+"\r\n")
				c.want("mg "+name+"1\r\n", "HD\r\n")
				c.want("mg "+name+"1 k\r\n", "HD k"+name+"1\r\n")
				c.want("mg "+name+"1 s f\r\n", "HD s20 f0\r\n")
				c.want("mg "+name+"1 T100 t\r\n", "HD t100\r\n")
				c.want("incr "+name+"2 1\r\n", next[number]+"\r\n")
				c.want("append "+name+"3 0 0 1\r\nx\r\n", "STORED\r\n")
				c.want("add "+name+"4 0 0 1\r\nx\r\n", "NOT_STORED\r\n")
				c.want("touch "+name+"5 100\r\n", "TOUCHED\r\n")
				c.want("gat 100 "+name+"6\r\n", "VALUE "+name+"6 0 20\r\n"+number+"\r\nEND\r\n")
				c.want("delete "+name+"7\r\n", "DELETED\r\n")
			}
		})
	}
}

// So are items with a lease's value and other client flags: reads that touch them end as all others do.
func TestAnItemWithTheValueOfALeaseIsRead(t *testing.T) {
	t.Parallel()
	for state := ringchange.Prepare; state <= ringchange.Finish; state++ {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			all := members(t, 2)
			r := start(t, router.Config{}, all...)
			for i := range 4 {
				all[1].Raw().Must("STORED", fmt.Sprintf("set new%d 1 0 20", i), []byte(ringchange.LeaseValue))
			}
			enter(t, r, &router.Table{Number: 1, State: state, Old: ring(t, all[0]), New: ring(t, all[1])})
			c := dial(t, r.address)
			c.want("gat 100 new0\r\n", "VALUE new0 1 20\r\n"+ringchange.LeaseValue+"\r\nEND\r\n")
			if got := c.ask("gats 100 new1\r\n"); !strings.HasPrefix(got, "VALUE new1 1 20 ") || !strings.HasSuffix(got, "\r\n"+ringchange.LeaseValue+"\r\nEND\r\n") {
				t.Errorf("gats: %q", got)
			}
			c.want("mg new2 T100 v\r\n", "VA 20\r\n"+ringchange.LeaseValue+"\r\n")
			c.want("mg new3 T100 v t\r\n", "VA 20 t100\r\n"+ringchange.LeaseValue+"\r\n")
			c.want("mg new3 t f\r\n", "HD t100 f1\r\n")
		})
	}
}

// The item keeps its client flags and its remaining time, even if that is more than the month up to which
// memcached's times are relative.
func TestAMovedItemKeepsItsFlagsAndItsTime(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	r := start(t, router.Config{}, all[0])
	c := dial(t, r.address)
	last := math.MaxInt32 - int(time.Now().Unix())
	seconds := []int{-1, 100, 3600, 30*24*3600 - 10, 31 * 24 * 3600, 400 * 24 * 3600, last}
	for i, s := range seconds {
		if s > 30*24*3600 {
			s = min(s+int(time.Now().Unix()), math.MaxInt32)
		}
		c.want(fmt.Sprintf("set key%d %d %d 1\r\nv\r\n", i, i+7, max(s, 0)), "STORED\r\n")
	}
	enter(t, r, &router.Table{Number: 1, State: ringchange.Move, Old: ring(t, all[0]), New: ring(t, all[1])})
	wait.For(t, "the keys to be moved", func() error {
		for i := range seconds {
			c.ask(fmt.Sprintf("get key%d\r\n", i))
		}
		if n := all[0].Items(t); n > 0 {
			return fmt.Errorf("%d items are at the old owner", n)
		}
		return nil
	})
	for i, s := range seconds {
		var flags, left int
		answer := c.ask(fmt.Sprintf("mg key%d f t\r\n", i))
		_, _ = fmt.Sscanf(answer, "HD f%d t%d", &flags, &left)
		const slack = 60 // in seconds: time passes, and the clocks of memcacheds are late on a busy machine
		if flags != i+7 || s < 0 && left != -1 || s > 0 && (left > s+slack || left < s-slack) {
			t.Errorf("key%d: %q, it had flags %d and %d seconds", i, answer, i+7, s)
		}
	}
}

// moveAll moves, under leases, all items that others own, until there are none left.
func moveAll(t *testing.T, all []*memcachedtest.Server, to router.Ring) {
	t.Helper()
	var movers sync.WaitGroup
	for _, from := range all {
		movers.Go(func() {
			for pass := range 100 {
				found, err := movePass(t, from, all, to)
				if err != nil {
					t.Error(err)
				}
				if found == 0 || err != nil {
					t.Logf("%d passes over %s", pass+1, from.Address())
					return
				}
			}
			t.Errorf("there are always items to be moved at %s", from.Address())
		})
	}
	movers.Wait()
}

func movePass(t *testing.T, from *memcachedtest.Server, all []*memcachedtest.Server, to router.Ring) (found int64, err error) {
	list, err := move.ListItems(t.Context(), func(context.Context) (*memcache.Conn, error) { return from.DialFor(t), nil }, t.TempDir(), 1<<20,
		func(e *move.Entry) bool { return to.Servers[to.Owner.Owner(e.Key)].Port != uint16(from.Port) })
	if err != nil {
		return 0, err
	}
	defer list.Close()
	for i, owner := range to.Servers {
		var keys []move.LeasedKey
		for e, err := range list.All() {
			if err != nil {
				return 0, err
			}
			if to.Owner.Owner(e.Key) == i {
				keys = append(keys, move.LeasedKey{Key: bytes.Clone(e.Key)})
			}
		}
		at := slices.IndexFunc(all, func(s *memcachedtest.Server) bool { return uint16(s.Port) == owner.Port })
		lane := move.KeyMover{Owners: [2]*memcache.Conn{ringchange.Old: from.DialFor(t), ringchange.New: all[at].DialFor(t)}}
		for batch := range slices.Chunk(keys, 16) {
			if err := lane.Move(batch); err != nil {
				return 0, err
			}
		}
	}
	return list.Len(), nil
}

// In Finish the old owner may end at any time: a request that the new owner has not answered yet succeeds.
func TestTheOldOwnerMayEndInFinish(t *testing.T) {
	t.Parallel()
	all := members(t, 2)
	old, owner := all[0], all[1]
	r := start(t, router.Config{MemberTimeout: time.Minute}, all...)
	enter(t, r, &router.Table{Number: 1, State: ringchange.Finish, Old: ring(t, old), New: ring(t, owner)})
	dial(t, r.address).want("set other 0 0 1\r\nx\r\n", "STORED\r\n")
	owner.Signal(syscall.SIGSTOP)
	requests := map[string]string{
		"set key 0 0 1\r\nx\r\n": "STORED", "incr number 1\r\n": "NOT_FOUND", "delete other\r\n": "DELETED", "add added 0 0 1\r\nx\r\n": "STORED",
	}
	clients := map[string]*conversation{}
	for request := range requests {
		clients[request] = dial(t, r.address)
		clients[request].say(request)
	}
	wait.For(t, "the requests to arrive", func() error {
		if n := r.Unanswered(); n != len(requests) {
			return fmt.Errorf("%d requests are unanswered", n)
		}
		return nil
	})
	old.Kill()
	wait.For(t, "the old owner to be missed", func() error {
		w := httptest.NewRecorder()
		r.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(w.Body.String(), fmt.Sprintf("memcached_router_member_connections{member=%q} 0\n", old.Address())) {
			return errors.New(w.Body.String())
		}
		return nil
	})
	owner.Signal(syscall.SIGCONT)
	for request, answer := range requests {
		if got, err := clients[request].r.ReadString('\n'); got != answer+"\r\n" {
			t.Errorf("%q: %q, %v", request, got, err)
		}
	}
}
