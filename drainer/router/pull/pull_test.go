package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router/change"
	"example.com/memcached-operator/drainer/router/command"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 4) }

// What comes of a key depends on what both owners have, and only that item is changed.
func TestWhatComesOfAKey(t *testing.T) {
	t.Parallel()
	old, owner := memcachedtest.Start(t, "-I", "2m"), memcachedtest.Start(t)
	at := [2]*memcachedtest.Raw{change.Old: old.Raw(), change.New: owner.Raw()}
	set := func(p change.Place, key, value string) {
		at[p].Must("STORED", fmt.Sprintf("set %s 5 0 %d", key, len(value)), []byte(value))
	}
	set(change.Old, "moved", "a value")
	set(change.Old, "both", "old")
	set(change.New, "both", "new")
	set(change.Old, "stale", "x")
	at[change.Old].Must("HD", "md stale I T100", nil)
	set(change.Old, "leased", "x")
	at[change.New].Must("HD", fmt.Sprintf("ms leased 0 ME T6 F%d", command.LeaseFlags), []byte{})
	set(change.Old, "large", strings.Repeat("x", 1_500_000))
	// A client may have flags that are those of leases.
	flags := fmt.Sprint(command.LeaseFlags)
	at[change.Old].Must("STORED", "set flagged "+flags+" 0 7", []byte("a value"))
	at[change.Old].Must("STORED", "set nothing "+flags+" 0 0", []byte{})
	at[change.Old].Must("STORED", "set short "+flags+" 100 0", []byte{})
	set(change.Old, "newer", "old")
	at[change.New].Must("STORED", "set newer "+flags+" 0 3", []byte("new"))
	set(change.Old, "emptied", "old")
	at[change.New].Must("STORED", "set emptied "+flags+" 0 0", []byte{})
	binary := "a key\x00in base64"
	at[change.Old].Must("HD", "ms YSBrZXkAaW4gYmFzZTY0 1 b", []byte("b"))
	keys, want := []Key{}, []Outcome{}
	for _, k := range []struct {
		key  string
		want Outcome
	}{
		{"moved", Moved}, {"both", Present}, {"none", Gone}, {"stale", Outdated}, {"leased", Later}, {"large", Refused},
		{"flagged", Moved}, {"nothing", Moved}, {"short", Moved}, {"newer", Present}, {"emptied", Present},
		{binary, Moved}, {strings.Repeat("k ", 120), Unsayable},
	} {
		keys, want = append(keys, Key{Key: []byte(k.key)}), append(want, k.want)
	}
	lane := Lane{Owners: [2]*memcache.Conn{change.Old: old.Dial(), change.New: owner.Dial()}}
	if err := lane.Move(keys); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if k.Outcome != want[i] || (k.Outcome == Refused) != (k.Why != "") || (k.Outcome == Moved) != (k.Bytes > 0) {
			t.Errorf("%.20q: %+v, want outcome %d", k.Key, k.Outcome, want[i])
		}
	}
	has := func(p change.Place, key, value string) {
		t.Helper()
		conn := []*memcachedtest.Server{old, owner}[p].Dial()
		v, err := conn.Get([]byte(key))
		if err != nil || (v == nil) != (value == "") || v != nil && value != "" && !bytes.HasPrefix(v.Data, []byte(value)) {
			t.Errorf("%.20q at owner %d is %.20v, %v; want %q", key, p, v, err, value)
		}
	}
	for key, values := range map[string][2]string{
		"moved": {"", "a value"}, "both": {"", "new"}, "none": {"", ""}, "stale": {"x", ""}, "large": {"xxx", ""}, binary: {"", "b"},
		"flagged": {"", "a value"}, "newer": {"", "new"},
	} {
		has(change.Old, key, values[0])
		has(change.New, key, values[1])
	}
}

// A pass tells of each key once, and goes on over other connections if these break. The leases of
// those have to expire first; what they are for is left for a later pass.
func TestAPassMovesAllKeysAlsoIfConnectionsBreak(t *testing.T) {
	t.Parallel()
	old := memcachedtest.Start(t)
	owners := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
	const keys = 5000
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
	p := Pass{From: between, To: []string{owners[0].Address(), owners[1].Address()}, Timeout: memcachedtest.Patience,
		KeepsCAS: func(int) bool { return false }, Waiting: func(int, string) {},
		Moved: func(_ context.Context, _ int, keys []Key) error {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				told[string(k.Key)]++
			}
			return nil
		}}
	all := func(yield func(Misplaced, error) bool) {
		for i := range keys {
			if !yield(Misplaced{Key: fmt.Appendf(nil, "key%d", i), Size: 50, Owner: i % 2}, nil) {
				return
			}
		}
	}
	passes := 0
	memcachedtest.WaitFor(t, "all to be moved", func() error {
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
	if n := owners[0].Items(t) + owners[1].Items(t); n != keys {
		t.Errorf("the owners have %d items", n)
	}
	errStop := errors.New("enough")
	err := p.Move(t.Context(), func(yield func(Misplaced, error) bool) { yield(Misplaced{}, errStop) })
	if !errors.Is(err, errStop) {
		t.Errorf("a pass whose keys end with an error: %v", err)
	}
}
