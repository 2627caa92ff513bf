package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

// shortOfMemory tells whether the leaving members' items fit on the survivors. The answer dates
// from the beginning of the scale-down, and stays until the volumes are gone.
func shortOfMemory(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionShortOfMemory
	was := meta.FindStatusCondition(s.Conditions, kind)
	switch room := in.Room; {
	case room.Short():
		then := "what was used least recently will be evicted"
		if in.Plan.SizeBlocked == plan.BlockedByShortage {
			then = "no member leaves until there is room"
		}
		return condition(kind, true, cachev1alpha1.ReasonShortOfMemory,
			"the leaving members have %s of items, the survivors have %s free: %s", mebibytes(room.Leaving), mebibytes(room.Free), then)
	case room != nil && room.Unknown != "":
		unknown := condition(kind, false, cachev1alpha1.ReasonMemoryUnknown, "it is not known whether the items fit: %s", room.Unknown)
		unknown.Status = metav1.ConditionUnknown
		return unknown
	case room != nil:
		return condition(kind, false, cachev1alpha1.ReasonEnoughMemory,
			"the leaving members have %s of items, the survivors have %s free", mebibytes(room.Leaving), mebibytes(room.Free))
	case was != nil && (len(s.Drains) > 0 || s.Size > in.Plan.Replicas):
		return *was // the scale-down has begun
	}
	return condition(kind, false, cachev1alpha1.ReasonEnoughMemory, "no member is about to leave")
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
