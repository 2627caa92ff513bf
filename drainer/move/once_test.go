package move

import (
	"fmt"
	"testing"
)

// A copy counts what it leaves out when it has too many items to remember each: one of them may be mistaken for another.
func TestACopyThatRemembersTooManyItemsCountsWhatItLeavesOut(t *testing.T) {
	c := &copying{}
	c.seen.Begin(1)
	most := 5 * int64(len(c.seen.words))
	s, cas := &copySource{c: c}, uint64(0)
	leavesOut := func() (n int64) {
		var p copyPart
		for i := range 10_000 {
			p.reset()
			p.add(&Entry{Key: fmt.Appendf(nil, "other%d", i), CAS: 1})
			if s.judge(&p, 0, 0, false); p.listed[0].skip {
				n++
			}
		}
		return n
	}
	for c.had < most {
		cas++
		c.seen.Had(c.versionOf([]byte("key"), cas))
		c.had++
	}
	if n := leavesOut(); n > 300 || c.leftOut.Load() != 0 {
		t.Errorf("%d are left out, %d were counted", n, c.leftOut.Load())
	}
	c.had++
	if n := leavesOut(); c.leftOut.Load() != n {
		t.Errorf("%d are left out, %d were counted", n, c.leftOut.Load())
	}
}

func TestAPassHasEachKeyOnceAndTakesFewForOthers(t *testing.T) {
	const keys = 200_000
	var o once
	for pass := range 3 {
		o.Begin(keys)
		wrong := 0
		for i := range keys {
			if o.Had(fmt.Appendf(nil, "key%d", i)) {
				wrong++
			}
		}
		if wrong > keys/1000 {
			t.Errorf("pass %d: %d of %d keys were taken for others", pass, wrong, keys)
		}
		for i := range keys {
			if key := fmt.Appendf(nil, "key%d", i); !o.Had(key) {
				t.Fatalf("pass %d: it has forgotten %s", pass, key)
			}
		}
	}
}
