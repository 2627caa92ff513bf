package memcache_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// old returns items that clients stored a while ago.
func old(n int) []item.Item {
	var items []item.Item
	for i := range n {
		items = append(items, item.Item{Key: fmt.Appendf(nil, "old%d", i), Value: []byte("old"), Flags: 7, LastAccess: time.Now().Unix() - 100})
	}
	return items
}

// later returns a time after all flushes of a test.
func later() int64 { return time.Now().Add(time.Hour).Unix() }

// Items that clients stored before a flush_all do not come back.
func TestFlushIsObeyed(t *testing.T) {
	// Each function flushes at its own moment, and returns the address for the Writer.
	for when, flush := range map[string]func(t *testing.T, s *memcachedtest.Server) string{
		"before the first connection": func(t *testing.T, s *memcachedtest.Server) string {
			s.Raw().Must("OK", "flush_all", nil)
			return s.Address()
		},
		"while a batch is on its way": func(t *testing.T, s *memcachedtest.Server) string {
			raw, once := s.Raw(), sync.Once{}
			return memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
				if bytes.Contains(sent, []byte("old0 ")) {
					once.Do(func() {
						raw.Must("OK", "flush_all", nil)
						raw.Must("STORED", "set old1 0 0 5", []byte("newer"))
					})
				}
				return true
			})
		},
		"when a connection broke": func(t *testing.T, s *memcachedtest.Server) string {
			raw, once := s.Raw(), sync.Once{}
			return memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
				stays := true
				if bytes.Contains(sent, []byte("old0 ")) {
					once.Do(func() {
						raw.Must("OK", "flush_all", nil)
						stays = false
					})
				}
				return stays
			})
		},
		"when a connection broke, and the answers were lost": func(t *testing.T, s *memcachedtest.Server) string {
			raw, once := s.Raw(), sync.Once{}
			return memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
				stays := true
				if bytes.Contains(sent, []byte("old0 ")) {
					once.Do(func() {
						raw.Must("OK", "flush_all", nil)
						for i := range 10 { // as if the server did it when it gets the batch
							raw.Must("STORED", fmt.Sprintf("add old%d 7 0 3", i), []byte("old"))
						}
						stays = false
					})
				}
				return stays
			})
		},
	} {
		t.Run(when, func(t *testing.T) {
			s := memcachedtest.Start(t)
			address := flush(t, s)
			w := connect(t, memcache.Options{Address: address})
			now := item.Item{Key: []byte("now"), Value: []byte("v"), LastAccess: later()}
			items := append(old(10), now)
			addAll(t, w, items...)
			c := s.Dial()
			for i := range items {
				v, err := c.Get(items[i].Key)
				if err != nil {
					t.Fatal(err)
				}
				if stays := items[i].LastAccess == now.LastAccess; v != nil && string(v.Data) == "old" || stays && v == nil {
					t.Errorf("%s: %+v", items[i].Key, v)
				}
			}
			if v, err := c.Get([]byte("old1")); when == "while a batch is on its way" && (err != nil || v == nil || string(v.Data) != "newer") {
				t.Errorf("what a client stored after the flush is %+v, %v", v, err)
			}
			// When an item is counted, the writer doesn't know whose value the second attempt has found.
			if got := w.Tally(); got.Added+got.Present+got.Invalidated != 11 || got.Invalidated < 9 && got.Present < 9 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The answer to the next batch shows it, and the ones after that are not sent.
func TestFlushBetweenBatches(t *testing.T) {
	s := memcachedtest.Start(t)
	var sent atomic.Int64
	w := connect(t, memcache.Options{Address: memcachedtest.Between(t, s.Address(), func(b []byte) bool {
		if bytes.Contains(b, []byte("stats settings")) {
			sent.Add(int64(bytes.Count(b, []byte(" old"))))
		}
		return true
	})})
	addAll(t, w, item.Item{Key: []byte("now"), Value: []byte("v"), LastAccess: later()})
	s.Raw().Must("OK", "flush_all", nil)
	for want := int64(5); want <= 10; want += 5 {
		addAll(t, w, old(5)...)
		if got := w.Tally(); got.Added != 1 || got.Invalidated != want {
			t.Errorf("%+v", got)
		}
		for _, it := range old(5) {
			if v, err := s.Dial().Get(it.Key); v != nil || err != nil {
				t.Errorf("%s: %+v, %v", it.Key, v, err)
			}
		}
	}
	if got := sent.Load(); got != 5 {
		t.Errorf("%d items were sent", got)
	}
}

// The item that waits for a batch was checked before the flush.
func TestFlushWhileAddWaits(t *testing.T) {
	s := memcachedtest.Start(t)
	goOn := make(chan struct{})
	w := connect(t, memcache.Options{BatchBytes: 1 << 10, Connections: 1, Address: memcachedtest.Between(t, s.Address(), func(b []byte) bool {
		if bytes.Contains(b, []byte(" old")) {
			<-goOn
		}
		return true
	})})
	items, next := old(1000), atomic.Int64{}
	added := make(chan error, 1)
	go func() {
		for i := range items {
			next.Store(int64(i))
			if err := w.Add(&items[i]); err != nil {
				added <- err
				return
			}
		}
		added <- w.Flush()
	}()
	wait.For(t, "an item that waits", func() error {
		before := next.Load()
		if time.Sleep(100 * time.Millisecond); before == 0 || next.Load() != before {
			return fmt.Errorf("item %d is next", next.Load())
		}
		return nil
	})
	s.Raw().Must("OK", "flush_all", nil)
	close(goOn)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	c := s.Dial()
	for i := range items {
		if v, err := c.Get(items[i].Key); v != nil || err != nil {
			t.Errorf("%s: %+v, %v", items[i].Key, v, err)
		}
	}
}

// A flush that was ordered for later has not happened.
func TestFlushOfTheFuture(t *testing.T) {
	s := memcachedtest.Start(t)
	s.Raw().Must("OK", "flush_all 100", nil)
	w := connect(t, memcache.Options{Address: s.Address()})
	addAll(t, w, old(3)...)
	if got := w.Tally(); got.Added != 3 {
		t.Errorf("%+v", got)
	}
}

// Items that were used after the flush are added.
func TestItemsOfAfterAFlush(t *testing.T) {
	s := memcachedtest.Start(t)
	s.Raw().Must("OK", "flush_all", nil)
	w := connect(t, memcache.Options{Address: s.Address()})
	items := old(3)
	for i := range items {
		items[i].LastAccess = later()
	}
	addAll(t, w, items...)
	if got := w.Tally(); got.Added != 3 {
		t.Errorf("%+v", got)
	}
}
