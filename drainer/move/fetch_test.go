package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/test/wait"
)

// newFetcher returns a fetcher for the memcached at an address. broken counts the connections that broke.
func newFetcher(t *testing.T, address string, broken *int) *fetcher {
	t.Helper()
	var conn *memcache.Conn
	t.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
	})
	return &fetcher{
		Behind: func() int64 { return 0 },
		Ask: func(ctx context.Context, do func(*memcache.Conn) error) error {
			return memcache.Insist(ctx, wait.Long, func(string) {}, func(time.Duration) (err error) {
				if conn == nil {
					if conn, err = memcache.Dial(ctx, address); err != nil {
						return err
					}
				}
				if err = do(conn); err != nil {
					conn.Close()
					conn, *broken = nil, *broken+1
				}
				return err
			})
		},
	}
}

func list(entries []Entry) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for i := range entries {
			e := entries[i]
			e.Key = bytes.Clone(e.Key)
			if !yield(&e, nil) {
				return
			}
			clear(e.Key) // it was only valid until now
		}
	}
}

// Items of all sizes and kinds come as memcached has them, in the list's order, even if connections break.
func TestEachListedItemIsRead(t *testing.T) {
	drainertest.ForSeeds(t, 6, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 9))
		m := memcachedtest.Start(t, "-m", "128")
		all := map[string]drainertest.Object{}
		var entries []Entry
		for i := range r.IntN(3 * partItems) {
			key := fmt.Sprintf("key:%d", i)
			switch r.IntN(20) {
			case 0:
				key = fmt.Sprintf("key \x00\n%d", i)
			case 1: // the text protocol can't carry it
				key = strings.Repeat(" ", 200) + key
			}
			e := Entry{Key: []byte(key)}
			if o := (drainertest.Object{Value: bytes.Repeat([]byte{byte(i)}, r.IntN(100)), Flags: r.Uint64N(1 << 32), TTL: []int64{0, 2000}[r.IntN(2)]}); r.IntN(10) > 0 && memcache.HasTextForm(e.Key) {
				if r.IntN(500) == 0 {
					o.Value = make([]byte, r.IntN(900_000))
				}
				all[key], e.Size = o, int64(len(o.Value))
			}
			entries = append(entries, e)
		}
		drainertest.Store(t, m.Address(), all)
		broken := 0
		f := newFetcher(t, drainertest.NewProxy(t, m.Address(), seed, r.IntN(4)).Address(), &broken)
		if r.IntN(3) == 0 {
			f.Limit = pace.Limit{Items: 1 + r.Int64N(1000), Bytes: 1 + r.Int64N(1_000_000)}
		}
		n := 0
		for it, err := range f.Items(t.Context(), list(entries)) {
			if err != nil {
				t.Fatal(err)
			}
			if want, there := all[string(entries[n].Key)]; !bytes.Equal(it.Key, entries[n].Key) || (it.CAS != 0) != there ||
				!bytes.Equal(it.Value, want.Value) || it.Flags != want.Flags || (it.ExpireAt != 0) != (want.TTL != 0) {
				t.Errorf("%q has %d bytes: %+v, want %+v", it.Key, len(it.Value), it, want)
			}
			n++
		}
		if n != len(entries) {
			t.Errorf("%d items, want %d", n, len(entries))
		}
		t.Logf("%d items, %d connections broke", n, broken)
	})
}

// The items were listed before.
func TestEachListedItemHasItsOutcome(t *testing.T) {
	m := memcachedtest.Start(t)
	raw, now := m.Raw(), time.Now().Unix()
	for _, c := range [][2]string{{"set there 0 1000 1", "v"}, {"set stale 0 1000 1", "v"}} {
		raw.Must("STORED", c[0], []byte(c[1]))
	}
	raw.Must("HD", "md stale I T1000", nil)
	raw.Must("HD t100 W", "mg claimed N100 t", nil) // and its client has yet to store it
	type outcome struct {
		state item.State
		there bool
	}
	want := map[string]outcome{"there": {item.Live, true}, "stale": {item.Invalidated, true}, "claimed": {item.Invalidated, true},
		"gone": {item.Invalidated, false}, "expired": {item.Expired, false}}
	var entries []Entry
	for key := range want {
		e := Entry{Key: []byte(key), ExpireAt: now + 1000}
		if key == "expired" {
			e.ExpireAt = now - 1
		}
		entries = append(entries, e)
	}
	broken := 0
	for it, err := range newFetcher(t, m.Address(), &broken).Items(t.Context(), list(entries)) {
		if err != nil {
			t.Fatal(err)
		}
		if got := (outcome{it.State, it.CAS != 0}); got != want[string(it.Key)] {
			t.Errorf("%s: %+v, want %+v", it.Key, got, want[string(it.Key)])
		}
		if string(it.Key) == "there" && it.ExpireAt != now+1000 {
			t.Errorf("it expires at %d, and was listed with %d", it.ExpireAt, now+1000)
		}
	}
}

// The reading ends when the consumer stops, and with the list's error.
func TestTheReadingEnds(t *testing.T) {
	m := memcachedtest.Start(t)
	var entries []Entry
	for i := range 10 * partItems {
		entries = append(entries, Entry{Key: fmt.Appendf(nil, "key:%d", i)})
	}
	broken, before := 0, runtime.NumGoroutine()
	for _, err := range newFetcher(t, m.Address(), &broken).Items(t.Context(), list(entries)) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	wait.For(t, "the goroutines to end", func() error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d, and %d before", n, before)
		}
		return nil
	})
	wrong, n, got := errors.New("the list is torn"), 0, error(nil)
	for _, err := range newFetcher(t, m.Address(), &broken).Items(t.Context(), func(yield func(*Entry, error) bool) {
		for i := range partItems + 1 {
			if !yield(&entries[i], nil) {
				return
			}
		}
		yield(nil, wrong)
	}) {
		if got = err; err == nil {
			n++
		}
	}
	if !errors.Is(got, wrong) || n != partItems {
		t.Errorf("%d items, then %v", n, got)
	}
}

// The memory of one part is reused for the next.
func TestAnItemTakesNoMemoryOfItsOwn(t *testing.T) {
	m := memcachedtest.Start(t, "-m", "128")
	all := map[string]drainertest.Object{}
	var entries []Entry
	for i := range 20 * partItems {
		key := fmt.Sprintf("key:%d", i)
		all[key] = drainertest.Object{Value: []byte("value")}
		entries = append(entries, Entry{Key: []byte(key), Size: 60})
	}
	drainertest.Store(t, m.Address(), all)
	broken, n := 0, 0
	f := newFetcher(t, m.Address(), &broken)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for it, err := range f.Items(t.Context(), func(yield func(*Entry, error) bool) {
		for i := range entries {
			if !yield(&entries[i], nil) {
				return
			}
		}
	}) {
		if err != nil || it.CAS == 0 {
			t.Fatalf("%s: %v", it.Key, err)
		}
		n++
	}
	runtime.ReadMemStats(&after)
	if each := float64(after.Mallocs-before.Mallocs) / float64(n); each > 0.1 {
		t.Errorf("%.2f allocations for each of %d items", each, n)
	}
}
