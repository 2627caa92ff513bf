package plan

import (
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"
)

// TestTheLiveCheckKeepsAPodThatMayHaveItems: a plan may be made of facts of before. So the live state is asked, too,
// before a StatefulSet without volumes is made smaller.
func TestTheLiveCheckKeepsAPodThatMayHaveItems(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(w *walk)
		replicas int32
		refused  bool
	}{
		"it has told nothing of its items": {func(*walk) {}, 2, true},
		"a person gives its items up":      {func(w *walk) { w.Claims[2].Request = claims.Skip }, 2, false},
		"its deadline is over":             {func(w *walk) { w.Now = w.Now.Add(2*moverStartsWithin + w.Cluster.MoveDeadline) }, 2, false},
		"the cluster hibernates":           {func(*walk) {}, 0, false},
		"its items are on a volume":        {func(w *walk) { w.Cluster.InPods = false }, 2, false},
	} {
		w := newPodWalk(3, "libmemcached-ketama", false)
		w.Record.Ring.Size, w.ListSize, w.Claims[2].LeavingSince = 2, 2, w.Now
		test.change(w)
		if err := MayShrink(&w.Observed, test.replicas); (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
