package memcache_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// old is what clients stored a while ago.
func old(n int) []item.Item {
	var items []item.Item
	for i := range n {
		items = append(items, item.Item{Key: fmt.Appendf(nil, "old%d", i), Value: []byte("old"), Flags: 7, LastAccess: time.Now().Unix() - 100})
	}
	return items
}

// TestFlushIsObeyed: what clients stored before a flush_all does not come back.
func TestFlushIsObeyed(t *testing.T) {
	// Each flushes at its own moment, and returns where the Writer finds the server.
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
	} {
		t.Run(when, func(t *testing.T) {
			s := memcachedtest.Start(t)
			address := flush(t, s)
			w := connect(t, memcache.Options{Address: address})
			now := item.Item{Key: []byte("now"), Value: []byte("v"), LastAccess: time.Now().Unix() + 5}
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
			if got := w.Tally(); got.Added+got.Present+got.Invalidated != 11 || got.Invalidated < 9 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestFlushOfTheFuture: one that was ordered for later is none yet.
func TestFlushOfTheFuture(t *testing.T) {
	s := memcachedtest.Start(t)
	s.Raw().Must("OK", "flush_all 100", nil)
	w := connect(t, memcache.Options{Address: s.Address()})
	addAll(t, w, old(3)...)
	if got := w.Tally(); got.Added != 3 {
		t.Errorf("%+v", got)
	}
}

// TestItemsOfAfterAFlush: what was used after the flush is added.
func TestItemsOfAfterAFlush(t *testing.T) {
	s := memcachedtest.Start(t)
	s.Raw().Must("OK", "flush_all", nil)
	w := connect(t, memcache.Options{Address: s.Address()})
	items := old(3)
	for i := range items {
		items[i].LastAccess = time.Now().Unix() + 3
	}
	addAll(t, w, items...)
	if got := w.Tally(); got.Added != 3 {
		t.Errorf("%+v", got)
	}
}
