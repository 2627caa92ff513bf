package memcache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// A value that is sent directly from its page arrives unchanged, although the page is reused at once when it
// is free, and connections break. Few pages may be held: the other values are copied.
func TestValuesOfPagesArriveAsTheyWere(t *testing.T) {
	const pageSize, pages, valueSize = 64 << 10, 300, 3000
	s := memcachedtest.Start(t, "-m", "128")
	var sent atomic.Int64
	through := memcachedtest.Between(t, s.Address(), func(b []byte) (stays bool) {
		const breaks = 300 << 10 // bytes after which a connection breaks
		n := sent.Add(int64(len(b)))
		return n/breaks == (n-int64(len(b)))/breaks
	})
	w := connect(t, memcache.Options{Address: through, Connections: 2, BatchBytes: 32 << 10})
	all := item.NewPages(2, 3)
	held, values := 0, map[string][]byte{}
	for n := range pages {
		var p *item.Page
		select {
		case p = <-all.Free():
			if p.Take(); p.Data == nil {
				p.Data = make([]byte, pageSize)
			}
		case <-wait.Over():
			t.Fatal("no page is free")
		}
		for at := 0; at+valueSize <= pageSize; at += valueSize {
			value := p.Data[at : at+valueSize]
			for i := range value {
				value[i] = byte(rand.Uint32())
			}
			key := fmt.Sprintf("%d-%d", n, at)
			values[key] = bytes.Clone(value)
			if err := w.Add(&item.Item{Key: []byte(key), Value: value, Page: p}); err != nil {
				t.Fatal(err)
			}
		}
		if p.Held() {
			held++
		}
		p.Release()
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if held == 0 || held == pages {
		t.Errorf("%d of %d pages were held, want some", held, pages)
	}
	c := s.Dial()
	for key, want := range values {
		if got, err := c.Get([]byte(key)); err != nil || got == nil || !bytes.Equal(got.Data, want) {
			t.Fatalf("%s: got %v, %v", key, got, err)
		}
	}
	if got := w.Tally(); got.Added+got.Present != int64(len(values)) || got.Rejected != 0 {
		t.Errorf("%d values: %+v", len(values), got)
	}
	for range 5 {
		select {
		case <-all.Free():
		case <-wait.Over():
			t.Fatal("a page is still held")
		}
	}
}

// A page of a mapped file can be read when its items are, but no longer when their values are sent, or
// compared after a flush. That is an error of the file, and not of the server.
func TestAHeldPageThatFails(t *testing.T) {
	const valueSize = 3000
	for _, when := range []string{"before it is sent", "when it was sent"} {
		t.Run(when, func(t *testing.T) {
			file, err := os.Create(filepath.Join(t.TempDir(), "file"))
			if err == nil {
				defer file.Close()
				_, err = file.Write(bytes.Repeat([]byte("v"), valueSize))
			}
			if err != nil {
				t.Fatal(err)
			}
			mem, err := syscall.Mmap(int(file.Fd()), 0, valueSize, syscall.PROT_READ, syscall.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Munmap(mem) })
			fail := func() {
				if err := file.Truncate(0); err != nil {
					t.Errorf("%v", err)
				}
			}
			s := memcachedtest.Start(t, "-m", "128")
			raw, came := s.Raw(), atomic.Bool{}
			through := memcachedtest.Between(t, s.Address(), func(sent []byte) bool {
				if bytes.Contains(sent, []byte("ms key ")) && !came.Swap(true) {
					raw.Must("OK", "flush_all", nil)
				}
				if came.Load() && bytes.Contains(sent, []byte("stats settings")) {
					fail()
				}
				return true
			})
			w := connect(t, memcache.Options{Address: through})
			p := (<-item.NewPages(1, 1).Free()).Take()
			if err := w.Add(&item.Item{Key: []byte("key"), Value: mem, Page: p, LastAccess: time.Now().Unix() - 100}); err != nil || !p.Held() {
				t.Fatalf("held: %t, %v", p.Held(), err)
			}
			if when == "before it is sent" {
				fail()
			}
			if err := w.Flush(); !errors.Is(err, item.ErrFault) || errors.Is(err, memcache.ErrUnreachable) {
				t.Errorf("%v", err)
			}
		})
	}
}
