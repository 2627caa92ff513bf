package move

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// aged is a source of items in random order, the n-th of which was last used n minutes ago.
type aged struct {
	n, size int
	passes  int
}

func (a *aged) Items(context.Context) iter.Seq2[*item.Item, error] {
	a.passes++
	return func(yield func(*item.Item, error) bool) {
		now := time.Now().Unix()
		for _, i := range rand.Perm(a.n) {
			it := &item.Item{Key: agedKey(i), Value: make([]byte, a.size), LastAccess: now - int64(i)*60 - 30}
			if !yield(it, nil) {
				return
			}
		}
	}
}

func agedKey(i int) []byte { return fmt.Appendf(nil, "used %d minutes ago", i) }

func (a *aged) Expected() int64 { return int64(a.n) }
func (a *aged) Size() int64     { return a.Used() }
func (a *aged) Used() int64     { return int64(a.n * a.size) }
func (a *aged) Done() int64     { return 0 }
func (a *aged) Lacking() error  { return nil }
func (a *aged) Clean() bool     { return true }
func (a *aged) Version() string { return "" }

// Survivors that are too small for all items end with those that were used last, whether they evict or refuse
// when they are full. Every item is counted once. The survivors have a single LRU. With several, which a
// thread of memcached maintains at its own pace, the evicted items would depend on how fast the others come.
func TestMostRecentlyUsedStay(t *testing.T) {
	tier.Second(t, "TestTheHottestItemsOfALeavingMemberMoveFirst")
	t.Parallel()
	for name, args := range map[string][]string{"evicting": nil, "refusing": {"-M"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, addresses := drainertest.Survivors(t, 2, append([]string{"-m", "16", "-f", "2", "-o", "no_lru_maintainer"}, args...)...)
			source := &aged{n: 20000, size: 4000}
			list := drainertest.MustParse(t, addresses)
			owner, err := routing.New("gomemcache", list)
			if err != nil {
				t.Fatal(err)
			}
			m := Engine{Source: source, Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: io.Discard}
			r := m.Run(t.Context())
			if r.Found != int64(source.n) || r.Added+r.Rejected != int64(source.n) || !r.Complete || (r.Rejected > 0) != (name == "refusing") {
				t.Errorf("%+v", r)
			}
			if evicted := r.Survivors[0].Evictions + r.Survivors[1].Evictions; (evicted > 0) != (name == "evicting") {
				t.Errorf("%d evictions", evicted)
			}
			conns := []*memcache.Conn{servers[0].DialFor(t), servers[1].DialFor(t)}
			recent, old := 0, 0
			for i := range source.n {
				v, err := conns[owner.Owner(agedKey(i))].Get(agedKey(i))
				switch {
				case err != nil:
					t.Fatal(err)
				case v != nil && i < 2500:
					recent++
				case v != nil && i >= source.n/2:
					old++
				}
			}
			if recent < 2400 || old > 500 {
				t.Errorf("of the last 2500 used, %d are there, and %d of the older half", recent, old)
			}
		})
	}
}

// If there is enough room, the source is read once.
func TestRoomForAll(t *testing.T) {
	t.Parallel()
	_, addresses := drainertest.Survivors(t, 2)
	list := drainertest.MustParse(t, addresses)
	source := &aged{n: 1000, size: 1000}
	m := Engine{Source: source, Owner: itself{}, Servers: list, UnreachableTimeout: wait.Long, Log: io.Discard}
	if r := m.Run(t.Context()); r.Added != 1000 || source.passes != 1 {
		t.Errorf("%d passes, %+v", source.passes, r)
	}
}
