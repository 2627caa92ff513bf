package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// The outcome of a key depends on the items of both owners, and only that key's item is changed.
func TestTheOutcomeOfAKeyDependsOnBothOwnersItems(t *testing.T) {
	t.Parallel()
	old, owner := memcachedtest.Start(t, "-I", "2m"), memcachedtest.Start(t)
	at := [2]*memcachedtest.Raw{ringchange.Old: old.Raw(), ringchange.New: owner.Raw()}
	set := func(p ringchange.Place, key, value string) {
		at[p].Must("STORED", fmt.Sprintf("set %s 5 0 %d", key, len(value)), []byte(value))
	}
	set(ringchange.Old, "moved", "a value")
	set(ringchange.Old, "both", "old")
	set(ringchange.New, "both", "new")
	set(ringchange.Old, "stale", "x")
	at[ringchange.Old].Must("HD", "md stale I T100", nil)
	set(ringchange.Old, "leased", "x")
	at[ringchange.New].Must("HD", "ms leased 20 ME T6", []byte(ringchange.LeaseValue))
	set(ringchange.Old, "large", strings.Repeat("x", 1_500_000))
	// A client's value may have the size of a lease's, its flags, or even its value: with other flags, or for longer.
	const sized, outdated = "a value of 20 bytes.", "18446744073709551614"
	at[ringchange.Old].Must("STORED", "set sized 0 0 20", []byte(sized))
	at[ringchange.Old].Must("STORED", "set flagged 1 0 20", []byte(ringchange.LeaseValue))
	at[ringchange.Old].Must("STORED", "set lasting 0 0 20", []byte(ringchange.LeaseValue))
	set(ringchange.Old, "kept", "old")
	at[ringchange.New].Must("STORED", "set kept 0 0 20", []byte(ringchange.LeaseValue))
	at[ringchange.Old].Must("STORED", "set nothing 0 0 0", []byte{})
	at[ringchange.Old].Must("STORED", "set newer 0 0 20", []byte(outdated))
	at[ringchange.New].Must("STORED", "set newer 0 0 20", []byte(sized))
	set(ringchange.Old, "emptied", "old")
	at[ringchange.New].Must("STORED", "set emptied 0 0 0", []byte{})
	binary := "a key\x00in base64"
	at[ringchange.Old].Must("HD", "ms YSBrZXkAaW4gYmFzZTY0 1 b", []byte("b"))
	keys, want := []LeasedKey{}, []keyOutcome{}
	for _, k := range []struct {
		key  string
		want keyOutcome
	}{
		{"moved", keyMoved}, {"both", keyPresent}, {"none", keyGone}, {"stale", keyOutdated}, {"leased", keyLater}, {"large", keyRefused},
		{"sized", keyMoved}, {"flagged", keyMoved}, {"lasting", keyMoved}, {"kept", keyPresent}, {"nothing", keyMoved}, {"newer", keyPresent}, {"emptied", keyPresent},
		{binary, keyMoved}, {strings.Repeat("k ", 120), keyNoTextForm},
	} {
		keys, want = append(keys, LeasedKey{Key: []byte(k.key)}), append(want, k.want)
	}
	lane := KeyMover{Owners: [2]*memcache.Conn{ringchange.Old: old.Dial(), ringchange.New: owner.Dial()}}
	if err := lane.Move(keys); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if k.Outcome != want[i] || (k.Outcome == keyRefused) != (k.Why != "") || (k.Outcome == keyMoved) != (k.Bytes > 0) {
			t.Errorf("%.20q: %+v, want outcome %d", k.Key, k.Outcome, want[i])
		}
	}
	has := func(p ringchange.Place, key, value string) {
		t.Helper()
		conn := []*memcachedtest.Server{old, owner}[p].Dial()
		v, err := conn.Get([]byte(key))
		if err != nil || (v == nil) != (value == "") || v != nil && value != "" && !bytes.HasPrefix(v.Data, []byte(value)) {
			t.Errorf("%.20q at owner %d is %.20v, %v; want %q", key, p, v, err, value)
		}
	}
	for key, values := range map[string][2]string{
		"moved": {"", "a value"}, "both": {"", "new"}, "none": {"", ""}, "stale": {"x", ""}, "large": {"xxx", ""}, binary: {"", "b"},
		"sized": {"", sized}, "flagged": {"", ringchange.LeaseValue}, "lasting": {"", ringchange.LeaseValue}, "kept": {"", ringchange.LeaseValue}, "newer": {"", sized},
	} {
		has(ringchange.Old, key, values[0])
		has(ringchange.New, key, values[1])
	}
}

// An owner without memory (-M) refuses moved items, and keeps those that clients have stored there since the
// keys were listed, also in the moment before its lease is asked for.
func TestAFullOwnerKeepsWhatClientsStore(t *testing.T) {
	t.Parallel()
	old, full := memcachedtest.Start(t), memcachedtest.Start(t, memcachedtest.FullArgs...)
	values := []string{"", "7", "text", ringchange.LeaseValue[1:] + "0", strings.Repeat("x", 3000)}
	keys := []LeasedKey{{Key: []byte("none")}}
	for i, value := range values {
		key := fmt.Sprintf("key-%d", i)
		keys = append(keys, LeasedKey{Key: []byte(key)})
		old.Raw().Must("STORED", "set "+key+" 0 0 3", []byte("old"))
		full.Raw().Must("STORED", fmt.Sprintf("set %s 0 0 %d", key, len(value)), []byte(value))
	}
	old.Raw().Must("STORED", "set none 0 0 3", []byte("old"))
	full.Fill(t)
	lane := KeyMover{Owners: [2]*memcache.Conn{ringchange.Old: old.Dial(), ringchange.New: full.Dial()}}
	if err := lane.Move(keys); err != nil {
		t.Fatal(err)
	}
	if k := keys[0]; k.Outcome != keyRefused || !strings.Contains(strings.ToLower(k.Why), "out of memory") {
		t.Errorf("a key that is not there: %+v", k)
	}
	for i, value := range values {
		k := keys[1+i]
		has, err := full.Dial().Get(k.Key)
		if err != nil || has == nil || string(has.Data) != value || k.Outcome != keyPresent {
			t.Errorf("%s, stored as %.20q: %+v, now %.20v, %v", k.Key, value, k, has, err)
		}
	}
	if n := old.Items(t); n != 1 {
		t.Errorf("the old owner has %d items, want the one that is not at the full owner", n)
	}
}

// A pass reports each key once, and goes on over other connections if these break. The leases of those have
// to expire first; their keys are left for a later pass.
func TestAPassMovesAllKeysAlsoIfConnectionsBreak(t *testing.T) {
	t.Parallel()
	old := memcachedtest.Start(t)
	owners := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	keys := 2000
	if tier.All() {
		keys = 5000
	}
	raw := old.Raw()
	for i := range keys {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 2", i), []byte("vv"))
	}
	var mu sync.Mutex
	breaks, told := 20, map[string]int{}
	between := memcachedtest.Between(t, old.Address(), func([]byte) bool {
		mu.Lock()
		defer mu.Unlock()
		breaks--
		return breaks < 0 || breaks%4 != 0
	})
	p := leasedPass{From: between, To: []string{owners[0].Address(), owners[1].Address()}, Timeout: wait.Long,
		KeepsCAS: func(int) bool { return false }, Waiting: func(int, string) {},
		Moved: func(_ context.Context, _ int, keys []LeasedKey) error {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				told[string(k.Key)]++
			}
			return nil
		}}
	all := func(yield func(misplacedKey, error) bool) {
		for i := range keys {
			if !yield(misplacedKey{Key: fmt.Appendf(nil, "key%d", i), Size: 50, Owner: i % 2}, nil) {
				return
			}
		}
	}
	passes := 0
	wait.For(t, "all to be moved", func() error {
		passes++
		if err := p.Move(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for key, n := range told {
			if n != passes {
				t.Fatalf("%d passes have told %d times of %s", passes, n, key)
			}
		}
		if left := old.Items(t); len(told) != keys || left > 0 {
			return fmt.Errorf("told of %d keys, %d are left", len(told), left)
		}
		return nil
	})
	if n := owners[0].Items(t) + owners[1].Items(t); n != int64(keys) {
		t.Errorf("the owners have %d items", n)
	}
	errStop := errors.New("enough")
	err := p.Move(t.Context(), func(yield func(misplacedKey, error) bool) { yield(misplacedKey{}, errStop) })
	if !errors.Is(err, errStop) {
		t.Errorf("a pass whose keys end with an error: %v", err)
	}
}

// A flush_all during the moves of keys is obeyed, at one owner before the other, and also if a connection
// breaks then: afterwards neither owner has an item from before it. Items that clients store after it stay.
func TestAFlushIsObeyedWhileKeysAreMoved(t *testing.T) {
	t.Parallel()
	flush := func(s *memcachedtest.Server) { s.Raw().Must("OK", "flush_all", nil) }
	const keys = 100
	store := func(s *memcachedtest.Server) {
		raw := s.Raw()
		for i := range keys {
			raw.Must("STORED", fmt.Sprintf("set key%d 0 0 3", i), []byte("old"))
		}
	}
	type pair struct{ old, owner *memcachedtest.Server }
	for name, test := range map[string]struct {
		// before is called before the first step, erase before each of the deletes at the old owner.
		before, erase func(p pair) (breaks bool)
	}{
		"at the new owner, and at the old one after the copy": {
			func(p pair) bool { flush(p.owner); return false }, func(p pair) bool { flush(p.old); return false }},
		"at the old owner after the copy":                               {nil, func(p pair) bool { flush(p.old); return false }},
		"at the new owner before, and at the old one when all is moved": {func(p pair) bool { flush(p.owner); return false }, nil},
		"and the connection breaks": {
			func(p pair) bool { flush(p.owner); return false }, func(p pair) bool { flush(p.old); return true }},
		"a second one in the same second": {
			func(p pair) bool { flush(p.owner); flush(p.old); store(p.old); return false }, func(p pair) bool { flush(p.old); return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both := pair{memcachedtest.Start(t), memcachedtest.Start(t)}
			store(both.old)
			var once, erased sync.Once
			from := memcachedtest.Between(t, both.old.Address(), func(sent []byte) bool {
				breaks := false
				if bytes.Contains(sent, []byte("mg key")) && test.before != nil {
					once.Do(func() { breaks = test.before(both) })
				}
				if bytes.Contains(sent, []byte("md key")) && test.erase != nil {
					erased.Do(func() {
						both.owner.Raw().Must("STORED", "set key7 0 0 5", []byte("newer"))
						breaks = test.erase(both)
					})
				}
				return !breaks
			})
			p := leasedPass{From: from, To: []string{both.owner.Address()}, Timeout: wait.Long, KeepsCAS: func(int) bool { return false },
				Waiting: func(int, string) {}, Moved: func(context.Context, int, []LeasedKey) error { return nil }}
			wait.For(t, "all to be moved", func() error {
				if err := p.Move(t.Context(), func(yield func(misplacedKey, error) bool) {
					for i := range keys {
						if !yield(misplacedKey{Key: fmt.Appendf(nil, "key%d", i), Size: 50}, nil) {
							return
						}
					}
				}); err != nil {
					t.Fatal(err)
				}
				return left(both.old.Dial(), keys, "old")
			})
			flush(both.old)
			owner := both.owner.Dial()
			if test.before != nil || test.erase != nil {
				if err := left(owner, keys, "old"); err != nil {
					t.Errorf("at the new owner: %v", err)
				}
			}
			if v, err := owner.Get([]byte("key7")); test.erase != nil && (err != nil || v == nil || string(v.Data) != "newer") {
				t.Errorf("what a client stored meanwhile: %+v, %v", v, err)
			}
		})
	}
}

// A request that has lost its lease may change an item that was copied: what it has changed replaces the copy. If that is
// gone by then, the copy stays.
func TestAnItemThatChangesAfterItsCopyIsCopiedAgain(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"it changes": "late", "it changes and goes": "old"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, owner := memcachedtest.Start(t), memcachedtest.Start(t)
			raw := old.Raw()
			raw.Must("STORED", "set key0 0 0 3", []byte("old"))
			fetches := 0
			var late sync.Once
			from := memcachedtest.Between(t, old.Address(), func(sent []byte) bool {
				switch {
				case bytes.Contains(sent, []byte("md key0")):
					late.Do(func() { raw.Must("STORED", "set key0 0 0 4", []byte("late")) })
				case bytes.Contains(sent, []byte("mg key0")):
					if fetches++; fetches == 2 && want == "old" {
						raw.Must("DELETED", "delete key0", nil)
					}
				}
				return true
			})
			var moved []LeasedKey
			p := leasedPass{From: from, To: []string{owner.Address()}, Timeout: wait.Long, KeepsCAS: func(int) bool { return false },
				Waiting: func(int, string) {}, Moved: func(_ context.Context, _ int, keys []LeasedKey) error { moved = append(moved, keys...); return nil }}
			if err := p.Move(t.Context(), func(yield func(misplacedKey, error) bool) { yield(misplacedKey{Key: []byte("key0"), Size: 50}, nil) }); err != nil {
				t.Fatal(err)
			}
			v, err := owner.Dial().Get([]byte("key0"))
			if err != nil || v == nil || string(v.Data) != want {
				t.Errorf("the new owner has %+v, %v; want %q", v, err, want)
			}
			if left, err := old.Dial().Get([]byte("key0")); err != nil || left != nil {
				t.Errorf("the old owner has %+v, %v", left, err)
			}
			if len(moved) != 1 || moved[0].Outcome != keyMoved || moved[0].Bytes == 0 {
				t.Errorf("%+v", moved)
			}
		})
	}
}

// A flush is also obeyed if the answers to the copies are lost, and the flush comes before the next attempt.
func TestAFlushIsObeyedWhenAnswersAreLost(t *testing.T) {
	t.Parallel()
	old, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	const keys = 10
	raw := old.Raw()
	for i := range keys {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 3", i), []byte("old"))
	}
	lost := false
	to := memcachedtest.Between(t, owner.Address(), func(sent []byte) bool {
		if lost || !bytes.Contains(sent, []byte("\r\nold\r\n")) {
			return true
		}
		lost = true
		conn := owner.Dial()
		if err := conn.Send(sent); err != nil {
			t.Error(err)
		}
		for range keys {
			if line, err := conn.Line(); err != nil || !bytes.HasPrefix(line, []byte("HD")) {
				t.Errorf("a copy: %q, %v", line, err)
			}
		}
		raw.Must("OK", "flush_all", nil)
		owner.Raw().Must("STORED", "set key7 0 0 5", []byte("newer"))
		return false
	})
	p := leasedPass{From: old.Address(), To: []string{to}, Timeout: wait.Long, KeepsCAS: func(int) bool { return false },
		Waiting: func(int, string) {}, Moved: func(context.Context, int, []LeasedKey) error { return nil }}
	if err := p.Move(t.Context(), func(yield func(misplacedKey, error) bool) {
		for i := range keys {
			if !yield(misplacedKey{Key: fmt.Appendf(nil, "key%d", i), Size: 50}, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	c := owner.Dial()
	if err := left(c, keys, "old"); err != nil || !lost {
		t.Errorf("at the new owner: %v", err)
	}
	if v, err := c.Get([]byte("key7")); err != nil || v == nil || string(v.Data) != "newer" {
		t.Errorf("what a client stored meanwhile: %+v, %v", v, err)
	}
}

// left returns an error if some keys have this value.
func left(c *memcache.Conn, keys int, value string) error {
	n := 0
	for i := range keys {
		v, err := c.Get(fmt.Appendf(nil, "key%d", i))
		if err != nil {
			return err
		}
		if v != nil && string(v.Data) == value {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d keys are %q", n, keys, value)
	}
	return nil
}

// The same holds if the mover reads the answers late, as on a busy machine: an item must not seem to be used
// since the flush.
func TestAFlushIsObeyedWhenAnswersAreReadLate(t *testing.T) {
	t.Parallel()
	old, owner := memcachedtest.Start(t), memcachedtest.Start(t)
	old.Raw().Must("STORED", "set key0 0 0 3", []byte("old"))
	owner.Raw().Must("OK", "flush_all", nil)
	late := memcachedtest.BothWays(t, old.Address(), func([]byte) bool { return true }, func(answered []byte) {
		if bytes.Contains(answered, []byte("\r\nold\r\n")) {
			time.Sleep(8 * time.Second) // the resolution of the clocks is below
		}
	})
	conn, err := memcache.Dialer{}.Dial(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lane := KeyMover{Owners: [2]*memcache.Conn{ringchange.Old: conn, ringchange.New: owner.Dial()}}
	keys := []LeasedKey{{Key: []byte("key0")}}
	if err := lane.Move(keys); err != nil || keys[0].Outcome != keyFlushed {
		t.Errorf("%+v, %v", keys, err)
	}
}

// Items that were stored some seconds after a flush of their new owner are moved, also if another flush is ordered for
// the future.
func TestItemsStoredAfterAFlushAreMoved(t *testing.T) {
	t.Parallel()
	for _, ordered := range []string{"flush_all", "flush_all 1000"} {
		t.Run(ordered, func(t *testing.T) {
			t.Parallel()
			old, owner := memcachedtest.Start(t), memcachedtest.Start(t)
			for _, m := range []*memcachedtest.Server{owner, old, owner} {
				m.Raw().Must("OK", "flush_all", nil)
			}
			owner.Raw().Must("OK", ordered, nil)
			wait.For(t, "a key that is stored later to be moved", func() error {
				old.Raw().Must("STORED", "set key0 0 0 1", []byte("v"))
				lane := KeyMover{Owners: [2]*memcache.Conn{ringchange.Old: old.Dial(), ringchange.New: owner.Dial()}}
				keys := []LeasedKey{{Key: []byte("key0")}}
				if err := lane.Move(keys); err != nil {
					t.Fatal(err)
				}
				if keys[0].Outcome != keyMoved {
					return fmt.Errorf("%+v", keys)
				}
				return nil
			})
		})
	}
}

// A pass has a handful of connections to the member, and takes little memory, for any number of owners.
func TestAPassToManyOwnersIsBounded(t *testing.T) {
	old := memcachedtest.Start(t, "-m", "512")
	var to []string
	for range 3 {
		s := memcachedtest.Start(t, "-m", "256", "-c", "4096")
		for range 170 {
			to = append(to, s.Address())
		}
	}
	const keys, size = 10_000, 4096
	raw := old.Raw()
	for i := range keys {
		raw.Must("STORED", fmt.Sprintf("set key%d 0 0 %d", i, size), make([]byte, size))
	}
	connections := func() int {
		stats, err := old.Dial().Stats("")
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(stats["total_connections"])
		return n
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before, memory := connections(), heap()
	var mu sync.Mutex
	moved, batches, most := 0, 0, int64(0)
	p := leasedPass{From: old.Address(), To: to, Timeout: wait.Long, KeepsCAS: func(int) bool { return false }, Waiting: func(int, string) {},
		Moved: func(_ context.Context, _ int, keys []LeasedKey) error {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				if k.Outcome == keyMoved {
					moved++
				}
			}
			if batches++; batches%10 == 0 {
				most = max(most, heap()-memory)
			}
			return nil
		}}
	if err := p.Move(t.Context(), func(yield func(misplacedKey, error) bool) {
		for i := range keys {
			if !yield(misplacedKey{Key: fmt.Appendf(nil, "key%d", i), Size: size, Owner: i % len(to)}, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := connections() - before - 1; n > 8 || moved != keys || most == 0 || most > 24<<20 {
		t.Errorf("%d connections to the member, %d of %d keys were moved, and it took %d KiB", n, moved, keys, most>>10)
	}
	t.Logf("%d owners: %d connections to the member, %d KiB, %d batches", len(to), connections()-before-2, most>>10, batches)
}
