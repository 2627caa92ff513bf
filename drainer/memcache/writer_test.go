package memcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

func connect(t *testing.T, o memcache.Options) *memcache.Writer {
	t.Helper()
	if o.UnreachableTimeout == 0 {
		o.UnreachableTimeout = wait.Long
	}
	w := memcache.NewWriter(o)
	if err := w.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func addAll(t *testing.T, w *memcache.Writer, items ...item.Item) {
	t.Helper()
	for i := range items {
		if err := w.Add(&items[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// Key, value, flags and time arrive unchanged, whatever their bytes and sizes.
func TestAddKeepsWhatAnItemIs(t *testing.T) {
	s := memcachedtest.Start(t)
	w := connect(t, memcache.Options{Address: s.Address(), Connections: 2})
	soon := time.Now().Unix() + 10_000
	items := map[string]item.Item{
		"plain":                {Key: []byte("plain"), Value: []byte("value")},
		"empty value":          {Key: []byte("empty")},
		"flags":                {Key: []byte("flags"), Value: []byte("v"), Flags: math.MaxUint32},
		"expires":              {Key: []byte("expires"), Value: []byte("v"), ExpireAt: soon},
		"expires after 2038":   {Key: []byte("late"), Value: []byte("v"), ExpireAt: 1 << 32},
		"longest key":          {Key: bytes.Repeat([]byte("k"), 250), Value: []byte("v")},
		"UTF-8 key":            {Key: []byte("schlüssel-鍵"), Value: []byte("v")},
		"key of odd bytes":     {Key: []byte("a b\r\nc\x00d\te\x7f"), Value: []byte("v")},
		"value like a command": {Key: []byte("evil"), Value: []byte("x\r\nflush_all\r\nNS\r\nMN\r\n")},
		"large value":          {Key: []byte("large"), Value: bytes.Repeat([]byte("0123456789"), 100000)},
	}
	var list []item.Item
	for _, it := range items {
		list = append(list, it)
	}
	addAll(t, w, list...)
	if got := w.Tally(); got.Added != int64(len(items)) || got.Present != 0 || got.Rejected != 0 {
		t.Fatalf("tally %+v, want %d added; %s", got, len(items), w.Refusal())
	}
	c := s.Dial()
	for name, it := range items {
		got, err := c.Get(it.Key)
		if err != nil || got == nil {
			t.Errorf("%s: got %v, %v", name, got, err)
			continue
		}
		if !bytes.Equal(got.Data, it.Value) || got.Flags != it.Flags {
			t.Errorf("%s: got %d bytes with flags %d, want %d with %d", name, len(got.Data), got.Flags, len(it.Value), it.Flags)
		}
		at, want := memcachedtest.ExpireAt(t, c, string(it.Key)), min(it.ExpireAt, math.MaxInt32)
		if d := at - want; d < -1 || d > 1 {
			t.Errorf("%s expires at %d, want %d", name, at, want)
		}
	}
}

// The server's values stay, and are counted.
func TestAddNeverOverwrites(t *testing.T) {
	for name, args := range map[string][]string{"evicting": nil, "refusing when full": {"-M"}} {
		t.Run(name, func(t *testing.T) {
			s := memcachedtest.Start(t, args...)
			first := connect(t, memcache.Options{Address: s.Address()})
			addAll(t, first, item.Item{Key: []byte("k"), Value: []byte("theirs"), Flags: 1})
			second := connect(t, memcache.Options{Address: s.Address()})
			addAll(t, second, item.Item{Key: []byte("k"), Value: []byte("ours")}, item.Item{Key: []byte("new"), Value: []byte("ours")})
			if got, want := second.Tally(), (memcache.Tally{Added: 1, Present: 1}); got.Added != want.Added || got.Present != want.Present {
				t.Errorf("tally %+v, want %+v", got, want)
			}
			got, err := s.Dial().Get([]byte("k"))
			if err != nil || string(got.Data) != "theirs" || got.Flags != 1 {
				t.Errorf("the server holds %+v, %v", got, err)
			}
		})
	}
}

// If memcached has no room for a meta add, it deletes its value for the key. That must not happen.
func TestRefusedItemsLeaveTheHeldValue(t *testing.T) {
	t.Run("too large", func(t *testing.T) {
		s := memcachedtest.Start(t, "-I", "512k", "-m", "64")
		w := connect(t, memcache.Options{Address: s.Address()})
		addAll(t, w, item.Item{Key: []byte("k"), Value: []byte("held")})
		addAll(t, w, item.Item{Key: []byte("k"), Value: make([]byte, 600<<10)})
		if got := w.Tally(); got.Rejected != 1 || !strings.Contains(w.Refusal(), "item size limit") {
			t.Errorf("tally %+v, refusal %q", got, w.Refusal())
		}
		if got, err := s.Dial().Get([]byte("k")); err != nil || got == nil || string(got.Data) != "held" {
			t.Errorf("the server holds %v, %v", got, err)
		}
	})
	t.Run("out of memory", func(t *testing.T) {
		s := memcachedtest.Start(t, "-M", "-m", "3")
		w := connect(t, memcache.Options{Address: s.Address()})
		addAll(t, w, item.Item{Key: []byte("k"), Value: []byte("held")})
		filler := item.Item{Value: make([]byte, 900)}
		for i := 0; w.Tally().Rejected == 0; i++ {
			if i == 5000 {
				t.Fatal("the server took 5000 items of 900 bytes into 3 MB")
			}
			filler.Key = fmt.Appendf(nil, "filler%d", i)
			addAll(t, w, filler)
		}
		// The refused item is a writer's first.
		fresh := connect(t, memcache.Options{Address: s.Address()})
		addAll(t, fresh, item.Item{Key: []byte("k"), Value: make([]byte, 900)})
		if got := fresh.Tally(); got.Rejected != 1 {
			t.Errorf("tally %+v, want one rejected", got)
		}
		if got, err := s.Dial().Get([]byte("k")); err != nil || got == nil || string(got.Data) != "held" {
			t.Errorf("the server holds %v, %v", got, err)
		}
	})
}

// The server dies and comes back while items are added. Each item is counted once, and all items that were
// sent after the last answer before its death are on it. The server stays away until the writer has reported that it
// doesn't answer.
func TestRestartInTheMiddle(t *testing.T) {
	s := memcachedtest.Start(t)
	silent, once := make(chan bool), sync.Once{}
	w := connect(t, memcache.Options{Address: s.Address(), Connections: 2, BatchBytes: 8 << 10,
		Waiting: func(why string) {
			if why != "" {
				once.Do(func() { close(silent) })
			}
		}})
	const items = 50000
	var restart sync.WaitGroup
	for i := range items {
		if i == items/2 {
			s.Kill()
			restart.Go(func() {
				select {
				case <-silent:
				case <-wait.Over():
					t.Error("no message said that the server does not answer")
				}
				s.Restart()
			})
		}
		it := item.Item{Key: fmt.Appendf(nil, "key%d", i), Value: []byte("value")}
		if err := w.Add(&it); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	got := w.Tally()
	if got.Added+got.Present != items || got.Rejected != 0 || w.Pending() != 0 {
		t.Errorf("tally %+v, %d pending, want %d in all", got, w.Pending(), items)
	}
	restart.Wait()
	c := s.Dial()
	for i := items * 3 / 4; i < items; i += 997 {
		if v, err := c.Get(fmt.Appendf(nil, "key%d", i)); err != nil || v == nil {
			t.Errorf("key%d is not there: %v", i, err)
		}
	}
}

// A server that is not there, disappears, or stops answering ends the writer after UnreachableTimeout, with
// an error that says so.
func TestAServerThatStopsAnsweringEndsTheWriter(t *testing.T) {
	const patience = 5 * time.Second
	t.Run("never there", func(t *testing.T) {
		t.Parallel()
		w := memcache.NewWriter(memcache.Options{Address: fmt.Sprintf("127.0.0.1:%d", memcachedtest.FreePort(t)), UnreachableTimeout: patience})
		if err := w.Connect(t.Context()); !errors.Is(err, memcache.ErrUnreachable) {
			t.Errorf("Connect = %v", err)
		}
		w.Close()
	})
	for name, silence := range map[string]syscall.Signal{"dies": syscall.SIGKILL, "hangs": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memcachedtest.Start(t)
			w := connect(t, memcache.Options{Address: s.Address(), UnreachableTimeout: patience})
			addAll(t, w, item.Item{Key: []byte("k")})
			s.Signal(silence)
			if err := w.Add(&item.Item{Key: []byte("l")}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := w.Flush(); !errors.Is(err, memcache.ErrUnreachable) {
				t.Errorf("Flush = %v", err)
			}
			if d := time.Since(start); d < patience {
				t.Errorf("gave up after %v, want %v at least", d, patience)
			}
			if w.Pending() != 1 || w.Tally().Added != 1 {
				t.Errorf("%d pending, %+v, want 1 and 1 added", w.Pending(), w.Tally())
			}
		})
	}
}

func TestTheEndOfTheContextEndsEverythingAtOnce(t *testing.T) {
	s := memcachedtest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	w := memcache.NewWriter(memcache.Options{Address: s.Address(), UnreachableTimeout: wait.Long})
	if err := w.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGSTOP)
	if err := w.Add(&item.Item{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Flush(); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush = %v", err)
	}
	w.Close()
}
