package memcache_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/wait"
)

// BenchmarkAdd adds items of about 100 bytes to one memcached. The cost of a batch is the difference between
// large batches, as in a drain to few servers, and small ones, as in a drain to many.
func BenchmarkAdd(b *testing.B) {
	for _, batch := range []int{8 << 10, 128 << 10} {
		b.Run(fmt.Sprintf("batches of %d KiB", batch>>10), func(b *testing.B) {
			s := memcachedtest.Start(b, "-m", "2048", "-t", "2")
			w := memcache.NewWriter(memcache.Options{Address: s.Address(), UnreachableTimeout: wait.Long, Connections: 2, BatchBytes: batch})
			if err := w.Connect(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(w.Close)
			it := item.Item{Value: make([]byte, 90), LastAccess: time.Now().Unix()}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				it.Key = strconv.AppendInt(append(it.Key[:0], "key:"...), int64(i), 10)
				if err := w.Add(&it); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if got := w.Tally().Added; got != int64(b.N) {
				b.Errorf("%d of %d were added", got, b.N)
			}
		})
	}
}
