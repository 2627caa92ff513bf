package router_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/router/onmiss"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// asksFor configures a router that asks the source for missed keys.
func asksFor(source router.Ring) router.Config {
	return router.Config{OnMiss: &onmiss.Config{Timeout: wait.Long, Find: func(context.Context) (router.Ring, error) { return source, nil }}}
}

// livesFor tells whether an answer to mg has about that time to live: clocks differ by a second or two.
func livesFor(answer string, seconds int) bool {
	n := 0
	_, err := fmt.Sscanf(answer, "HD t%d\r\n", &n)
	return err == nil && n > seconds*9/10 && n <= seconds+2
}

// asks waits until a router asks the source, whose owner of the key has it.
func asks(t *testing.T, c *conversation, key, want string) {
	t.Helper()
	wait.For(t, "the router to ask the source", func() error {
		if got := c.ask("get " + key + "\r\n"); got != want {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

// A router asks the source for missed keys, and keeps the items, with flags and time to live. A key that a
// client has stored or deleted at any router never comes back from the source, not even when it has expired;
// the source keeps all of its items.
func TestWhatMembersMissComesFromTheSource(t *testing.T) {
	t.Parallel()
	source, targets := members(t, 2), members(t, 2)
	one := start(t, asksFor(ring(t, source...)), targets...)
	two := start(t, asksFor(ring(t, source...)), targets...)
	old := start(t, router.Config{}, source...)
	at, a, b := dial(t, old.address), dial(t, one.address), dial(t, two.address)
	for _, key := range []string{"warm", "read", "meta", "count", "deleted", "set", "expires", "added", "appended", "touched", "quiet", "x1", "x3"} {
		at.want(fmt.Sprintf("set %s 7 1000 1\r\n5\r\n", key), "STORED\r\n")
	}
	asks(t, a, "warm", "VALUE warm 7 1\r\n5\r\nEND\r\n")
	asks(t, b, "x1", "VALUE x1 7 1\r\n5\r\nEND\r\n")
	a.want("get x1 x2 x3\r\n", "VALUE x1 7 1\r\n5\r\nVALUE x3 7 1\r\n5\r\nEND\r\n")
	a.want("get read\r\n", "VALUE read 7 1\r\n5\r\nEND\r\n")
	a.want("mg meta v f k Oabc\r\n", "VA 1 f7 kmeta Oabc\r\n5\r\n")
	a.want("mg nothing v\r\n", "EN\r\n")
	a.want("mg quiet v q\r\n", "VA 1\r\n5\r\n")
	a.want("get nothing\r\n", "END\r\n")
	if ttl := a.ask("mg read t\r\n"); !livesFor(ttl, 1000) {
		t.Errorf("the time to live: %q", ttl)
	}
	// Updates depend on the present item.
	a.want("incr count 2\r\n", "7\r\n")
	a.want("append appended 0 0 1\r\n6\r\n", "STORED\r\n")
	b.want("get appended\r\n", "VALUE appended 7 2\r\n56\r\nEND\r\n")
	a.want("add added 0 0 1\r\n9\r\n", "NOT_STORED\r\n")
	a.want("gat 100 touched\r\n", "VALUE touched 7 1\r\n5\r\nEND\r\n")
	// Neither router brings back a key that was deleted, or stored, at the other one.
	a.want("delete deleted\r\n", "NOT_FOUND\r\n")
	b.want("get deleted\r\n", "END\r\n")
	a.want("delete read\r\n", "DELETED\r\n")
	b.want("get read\r\n", "END\r\n")
	b.want("add read 0 0 1\r\n1\r\n", "STORED\r\n")
	a.want("set set 0 0 1\r\n2\r\n", "STORED\r\n")
	b.want("get set\r\n", "VALUE set 0 1\r\n2\r\nEND\r\n")
	a.want("set expires 0 -1 1\r\n2\r\n", "STORED\r\n")
	b.want("get expires\r\n", "END\r\n")
	a.want("delete count noreply\r\nget count\r\n", "END\r\n")
	b.want("get count\r\n", "END\r\n")
	at.want("get deleted\r\n", "VALUE deleted 7 1\r\n5\r\nEND\r\n")
	// After a flush nothing of the source is valid.
	a.want("flush_all\r\n", "OK\r\n")
	a.want("get x3\r\n", "END\r\n")
	at.want("get x3\r\n", "VALUE x3 7 1\r\n5\r\nEND\r\n")
}

// Under load, through two routers, no client sees a value that is older than the last one that it has stored, or one that
// it has deleted: every key is used by one client, by each router in turn. The source has an old value of each key.
func TestNoOldValueComesFromTheSourceUnderLoad(t *testing.T) {
	t.Parallel()
	source, targets := members(t, 3), members(t, 2)
	one := start(t, asksFor(ring(t, source...)), targets...)
	two := start(t, asksFor(ring(t, source...)), targets...)
	old := start(t, router.Config{}, source...)
	const clients, keys, rounds = 6, 60, 1500
	fill := dial(t, old.address)
	for k := range keys {
		fill.want(fmt.Sprintf("set key-%d 0 0 1\r\n0\r\n", k), "STORED\r\n")
	}
	fill.want("set ready 0 0 1\r\n1\r\n", "STORED\r\n")
	for _, r := range []*running{one, two} {
		asks(t, dial(t, r.address), "ready", "VALUE ready 0 1\r\n1\r\nEND\r\n")
	}
	var hits atomic.Int64
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			at := []*conversation{dial(t, one.address), dial(t, two.address)}
			var direct []*conversation
			for _, m := range targets {
				direct = append(direct, dial(t, m.Address()))
			}
			random := rand.New(rand.NewPCG(uint64(n), 2))
			// has is the value of each key of this client: -1 nothing, and 0 the source's.
			has := map[int]int{}
			for version := 1; version <= rounds; version++ {
				k, c := random.IntN(keys/clients)*clients+n, at[random.IntN(2)]
				switch random.IntN(8) {
				case 0:
					c.ask(fmt.Sprintf("delete key-%d\r\n", k))
					has[k] = -1
				case 1:
					value := fmt.Sprint(version)
					c.want(fmt.Sprintf("set key-%d 0 0 %d\r\n%s\r\n", k, len(value), value), "STORED\r\n")
					has[k] = version
				case 2: // as an eviction, which no client has ordered
					for _, m := range direct {
						m.ask(fmt.Sprintf("delete key-%d\r\n", k))
					}
					if has[k] > 0 {
						has[k] = -1
					}
				default:
					got := c.ask(fmt.Sprintf("get key-%d\r\n", k))
					want := "END\r\n"
					if has[k] >= 0 {
						value := fmt.Sprint(has[k])
						want = fmt.Sprintf("VALUE key-%d 0 %d\r\n%s\r\nEND\r\n", k, len(value), value)
					}
					if got != want {
						t.Errorf("key-%d is %q, want %q", k, got, want)
						return
					}
					if has[k] == 0 {
						hits.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	if hits.Load() == 0 {
		t.Error("nothing came from the source")
	}
}

// A source that doesn't answer is a miss, and is then left alone: later misses take no time.
func TestASourceThatDoesNotAnswerIsAMiss(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestWhatMembersMissComesFromTheSource")
	for name, address := range map[string]string{"silent": silentPlace(t), "gone": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, err := routing.ParseServer(address)
			if err != nil {
				t.Fatal(err)
			}
			source := router.Ring{Servers: []routing.Server{servers}}
			if source.Owner, err = routing.New("pymemcache", source.Servers); err != nil {
				t.Fatal(err)
			}
			config := asksFor(source)
			config.OnMiss.Timeout = 50 * time.Millisecond
			r := start(t, config, members(t, 1)...)
			c := dial(t, r.address)
			for i := range 200 {
				c.want(fmt.Sprintf("get key-%d\r\n", i), "END\r\n")
				c.want(fmt.Sprintf("set key-%d 0 0 1\r\n1\r\n", i), "STORED\r\n")
				c.want(fmt.Sprintf("incr key-%d 1\r\n", i), "2\r\n")
			}
			if s := r.Report().Source; s.Failures == 0 || s.Failures > 100 || s.Hits > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A source that can't be found yet is a miss.
func TestASourceThatIsNotFoundYetIsAMiss(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestWhatMembersMissComesFromTheSource")
	source := members(t, 1)
	var found atomic.Bool
	config := asksFor(router.Ring{})
	config.OnMiss.Find = func(context.Context) (router.Ring, error) {
		if !found.Load() {
			return router.Ring{}, errors.New("not yet")
		}
		return ring(t, source...), nil
	}
	r := start(t, config, members(t, 1)...)
	dial(t, source[0].Address()).want("set key 0 0 1\r\n1\r\n", "STORED\r\n")
	c := dial(t, r.address)
	c.want("get key\r\n", "END\r\n")
	found.Store(true)
	asks(t, c, "key", "VALUE key 0 1\r\n1\r\nEND\r\n")
}

// An old source, which has no meta commands, tells no time to live.
func TestAnOldSourceIsAskedByGets(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestWhatMembersMissComesFromTheSource")
	source := memcachedtest.Fake(t, func(line string) string {
		switch line {
		case "version":
			return "VERSION 1.5.16\r\n"
		case "gets key":
			return "VALUE key 3 3 77\r\nabc\r\nEND\r\n"
		}
		return "END\r\n"
	})
	config := asksFor(ring(t, source))
	config.OnMiss.TTL = 100 * time.Second
	r := start(t, config, members(t, 1)...)
	c := dial(t, r.address)
	asks(t, c, "key", "VALUE key 3 3\r\nabc\r\nEND\r\n")
	if ttl := c.ask("mg key t\r\n"); !livesFor(ttl, 100) {
		t.Errorf("the time to live: %q", ttl)
	}
}

// A version of Debian's that has meta commands, but not those that members need.
func TestASourceOfAnotherVersionTellsTheTimeToLive(t *testing.T) {
	t.Parallel()
	for _, suite := range []string{"bullseye", "trixie"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			tier.Second(t, "TestWhatMembersMissComesFromTheSource")
			source := memcachedtest.StartSuite(t, suite)
			source.Raw().Must("STORED", "set key 3 1000 3", []byte("abc"))
			r := start(t, asksFor(ring(t, source)), members(t, 1)...)
			c := dial(t, r.address)
			asks(t, c, "key", "VALUE key 3 3\r\nabc\r\nEND\r\n")
			if ttl := c.ask("mg key t\r\n"); !livesFor(ttl, 1000) {
				t.Errorf("the time to live: %q", ttl)
			}
		})
	}
}

// Keys that the binary protocol misses come from the source, too; and keys that it deletes stay deleted.
func TestBinaryClientsMissFromTheSource(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestWhatMembersMissComesFromTheSource")
	source := members(t, 1)
	r := start(t, asksFor(ring(t, source...)), members(t, 2)...)
	at := dial(t, source[0].Address())
	for _, key := range []string{"warm", "read", "deleted"} {
		at.want("set "+key+" 7 1000 1\r\n5\r\n", "STORED\r\n")
	}
	asks(t, dial(t, r.address), "warm", "VALUE warm 7 1\r\n5\r\nEND\r\n")
	c := dial(t, r.address)
	const opGet, opDelete = 0, 4
	if p := c.one(packet{opcode: opGet, key: "read"}); p.status != 0 || p.value != "5" {
		t.Errorf("%v", p)
	}
	c.one(packet{opcode: opDelete, key: "deleted"})
	if p := c.one(packet{opcode: opGet, key: "deleted"}); p.status != 1 {
		t.Errorf("%v", p)
	}
}

// While the owners change, nothing comes from the source, and written values stay newer than the source's.
func TestNothingComesFromTheSourceDuringARingChange(t *testing.T) {
	t.Parallel()
	tier.Second(t, "TestWhatMembersMissComesFromTheSource")
	source, targets := members(t, 1), members(t, 2)
	before, after := ring(t, targets[0]), ring(t, targets...)
	config := asksFor(ring(t, source...))
	config.Table = &router.Table{Number: 1, New: before}
	r := start(t, config)
	at, c := dial(t, source[0].Address()), dial(t, r.address)
	for i := range 40 {
		at.want(fmt.Sprintf("set key-%d 0 0 1\r\n0\r\n", i), "STORED\r\n")
	}
	asks(t, c, "key-0", "VALUE key-0 0 1\r\n0\r\nEND\r\n")
	number := int64(1)
	for _, state := range []ringchange.State{ringchange.Prepare, ringchange.Settle, ringchange.Move, ringchange.Finish, ringchange.Stable} {
		number++
		table := &router.Table{Number: number, State: state, Old: before, New: after}
		if state == ringchange.Stable {
			table.Old = router.Ring{}
		}
		enter(t, r, table)
		if i := int(number); state != ringchange.Stable {
			c.want(fmt.Sprintf("set key-%d 0 0 1\r\n1\r\n", i), "STORED\r\n")
			c.want(fmt.Sprintf("delete key-%d\r\n", i+10), "NOT_FOUND\r\n")
			c.want(fmt.Sprintf("get key-%d\r\n", i+20), "END\r\n")
		}
	}
	for i := 2; i <= 5; i++ {
		for _, m := range targets {
			dial(t, m.Address()).ask(fmt.Sprintf("delete key-%d\r\n", i)) // as an eviction
		}
		c.want(fmt.Sprintf("get key-%d\r\n", i), "END\r\n")
		c.want(fmt.Sprintf("get key-%d\r\n", i+10), "END\r\n")
		c.want(fmt.Sprintf("get key-%d\r\n", i+20), fmt.Sprintf("VALUE key-%d 0 1\r\n0\r\nEND\r\n", i+20))
	}
}
