package move

import (
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// flood is a source of many more items than a drain may keep in memory; each is called with the number of
// every item.
type flood struct {
	aged
	each func(i int)
}

func (f *flood) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		i := 0
		for it, err := range f.aged.Items(ctx) {
			f.each(i)
			if i++; !yield(it, err) {
				return
			}
		}
	}
}

// standstill returns when a source has not been read for a while.
func standstill(read *atomic.Int64) {
	const whole = 100 * time.Millisecond
	for last := int64(-1); last != read.Load(); time.Sleep(whole) {
		last = read.Load()
	}
}

// A survivor may do anything: the drain waits and does not read ahead: items without an outcome stay within
// batchMemory.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const n, size = 8000, 10000
	for name, test := range map[string]struct {
		every int
		// do is what a survivor does, and then what it does when the drain has come to a standstill.
		do, then func(s *memcachedtest.Server)
		ends     int // the drain's exit code
	}{
		"slow": {1000, func(s *memcachedtest.Server) { s.Signal(syscall.SIGSTOP) },
			func(s *memcachedtest.Server) { s.Signal(syscall.SIGCONT) }, contract.ExitOK},
		"restarting": {4000, (*memcachedtest.Server).Kill, (*memcachedtest.Server).Restart, contract.ExitOK},
		"hanging":    {n - n/4, func(s *memcachedtest.Server) { s.Signal(syscall.SIGSTOP) }, nil, contract.ExitUnreachable},
		"dead":       {n - n/4, func(s *memcachedtest.Server) { s.Kill() }, nil, contract.ExitUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "hanging" {
				tier.Second(t, "TestMemoryIsBounded/hanging")
			}
			t.Parallel()
			servers, addresses := drainertest.Survivors(t, 2, "-m", "256")
			list := drainertest.MustParse(t, addresses)
			owner, err := routing.New("gomemcache", list)
			if err != nil {
				t.Fatal(err)
			}
			m := Engine{Owner: owner, Servers: list, UnreachableTimeout: wait.Long, Log: io.Discard}
			if test.ends != contract.ExitOK {
				m.UnreachableTimeout = 10 * time.Second // this also bounds connecting
			}
			most, read := int64(0), atomic.Int64{}
			var back sync.WaitGroup
			t.Cleanup(back.Wait)
			m.Source = &flood{aged{n: n, size: size}, func(i int) {
				done := int64(0)
				for _, w := range m.writers {
					done += w.Done()
				}
				most = max(most, (int64(i)-done)*size)
				if read.Add(1); i%test.every == test.every/3 {
					back.Wait() // the survivor has done its part
					test.do(servers[1])
					if test.then != nil {
						back.Go(func() {
							standstill(&read)
							test.then(servers[1])
						})
					}
				}
			}}
			r := m.Run(t.Context())
			if r.ExitCode != test.ends || r.Complete != (test.ends == contract.ExitOK) {
				t.Errorf("%+v", r)
			}
			if most > batchMemory || most == 0 {
				t.Errorf("%d bytes were under way, of at most %d", most, batchMemory)
			}
		})
	}
}
