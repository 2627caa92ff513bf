package pace

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A burst comes on top of the limit.
func TestInNoSecondGoesMoreThanTheLimit(t *testing.T) {
	for _, limit := range []Limit{{Items: 1000}, {Bytes: 100000}, {Items: 1000, Bytes: 100000}, {Items: 7}} {
		p, r := New(limit), rand.New(rand.NewPCG(1, 2))
		now := time.Unix(1000, 0)
		type sent struct {
			at   time.Time
			size int
		}
		var all []sent
		for range 3000 {
			size := 1 + r.IntN(300)
			now = now.Add(p.Next(now, size))
			all = append(all, sent{now, size})
			if r.IntN(500) == 0 {
				now = now.Add(3 * time.Second) // an idle time, which is not made up for
			}
		}
		for from, items, bytes, to := 0, 0, 0, 0; from < len(all); from++ {
			for ; to < len(all) && all[to].at.Sub(all[from].at) < time.Second; to++ {
				items, bytes = items+1, bytes+all[to].size
			}
			most := 1 + burst.Seconds()
			if limit.Items > 0 && float64(items) > float64(limit.Items)*most+2 || limit.Bytes > 0 && float64(bytes) > float64(limit.Bytes)*most+600 {
				t.Fatalf("%+v: %d items and %d bytes in a second", limit, items, bytes)
			}
			items, bytes = items-1, bytes-all[from].size
		}
		if limit.Items == 1000 && limit.Bytes == 0 && now.Sub(time.Unix(1000, 0)) > 30*time.Second {
			t.Errorf("%+v: 3000 items took %v", limit, now.Sub(time.Unix(1000, 0)))
		}
	}
	if wait := New(Limit{}).Next(time.Now(), 1<<30); wait != 0 {
		t.Errorf("without a limit: %v", wait)
	}
}
