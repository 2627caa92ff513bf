package memcache_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// A meta add that finds no memory deletes the present value, so meta adds are sent only while the server has
// memory left.
func TestAddsAreClassicWhereMemoryIsShort(t *testing.T) {
	for what, test := range map[string]struct {
		memory string // -m, in MiB
		used   int    // by clients, before the second add, in MiB
		first  string // the first command, and the second one
		second string
	}{
		"there is enough":        {"256", 0, "ms ", "ms "},
		"there is little":        {"32", 0, "add ", "add "},
		"clients use it up":      {"128", 80, "ms ", "add "},
		"clients use it in part": {"256", 80, "ms ", "ms "},
	} {
		t.Run(what, func(t *testing.T) {
			if test.first == test.second {
				tier.Second(t, "TestAddsAreClassicWhereMemoryIsShort/clients_use_it_up")
			}
			t.Parallel()
			s := memcachedtest.Start(t, "-m", test.memory)
			var command atomic.Value
			address := memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
				for _, c := range []string{"ms ", "add "} {
					if bytes.HasPrefix(sent, []byte(c)) && bytes.Contains(sent, []byte("moved")) {
						command.Store(c)
					}
				}
				return true
			})
			w := connect(t, memcache.Options{Address: address})
			addAll(t, w, item.Item{Key: []byte("moved1"), Value: []byte("v")})
			if got := command.Load(); got != test.first {
				t.Errorf("the first add is by %q, want %q", got, test.first)
			}
			c := s.Dial()
			value := bytes.Repeat([]byte("x"), 1<<16)
			for i := range test.used << 4 {
				if err := c.Send(fmt.Appendf(nil, "set client%d 0 0 %d noreply\r\n%s\r\n", i, len(value), value)); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Ping(); err != nil {
				t.Fatal(err)
			}
			wait.For(t, "an add by "+test.second, func() error {
				addAll(t, w, item.Item{Key: fmt.Appendf(nil, "moved%d", time.Now().UnixNano()), Value: []byte("v")})
				if got := command.Load(); got != test.second {
					return fmt.Errorf("it is by %q", got)
				}
				return nil
			})
		})
	}
}

// A copy's mark is kept where memory is short: without it, a later pass neither replaces nor deletes the item. A server
// that refuses items when it is full gets none.
func TestMarksAreKeptWhereMemoryIsShort(t *testing.T) {
	t.Parallel()
	const mark = 1 << 52
	for what, test := range map[string]struct {
		args   []string
		marked bool
	}{
		"it evicts":   {[]string{"-m", "32"}, true},
		"it does not": {[]string{"-m", "32", "-M"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := memcachedtest.StartNewerSuite(t, test.args...)
			w := connect(t, memcache.Options{Address: s.Address()})
			addAll(t, w, item.Item{Key: []byte("one"), Value: []byte("v"), Mark: mark})
			cas, err := s.Dial().CAS([]byte("one"))
			if err != nil || (cas == mark) != test.marked || w.Limits().Marks() != test.marked {
				t.Errorf("its CAS is %d, %v", cas, err)
			}
		})
	}
}
