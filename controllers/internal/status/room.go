package status

import (
	"fmt"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

const leaversHave = "the leaving members have"

// shortOfMemory is the advice that the leaving members' items don't fit on the survivors, or that this is not
// known although the spec asks to wait for room. The advice is computed when the scale-down begins, and stays
// until the volumes are gone. While the size waits for room, Degraded says so instead.
func shortOfMemory(in *Input, s *cachev1alpha1.MemcachedStatus) *cachev1alpha1.Advice {
	begins := in.Room != nil && in.Plan.SizeBlocked == plan.NotBlocked // otherwise the numbers change while the size waits
	switch room := in.Room; {
	case in.Plan.SizeBlocked == plan.BlockedByShortage:
		return nil
	case begins && room.Short():
		return advise(cachev1alpha1.ReasonShortOfMemory, "%s: what was used least recently will be evicted", room.Says(leaversHave))
	case begins && room.Unknown != "" && in.Cluster.Spec.Drain.OnShortage == cachev1alpha1.ShortageWait:
		return advise(cachev1alpha1.ReasonMemoryUnknown,
			"the scale-down doesn't wait for room, because it is not known whether the items of the leaving members fit on the survivors: %s", room.Unknown)
	case !begins && (len(s.Drains) > 0 || s.Size > in.Plan.Replicas): // the scale-down has begun
		return said(s.Advice, cachev1alpha1.ReasonShortOfMemory, cachev1alpha1.ReasonMemoryUnknown)
	}
	return nil
}

// waitsForRoom says what a size for which there is too little room waits for.
func waitsForRoom(in *Input) string {
	message := fmt.Sprintf("the size goes from %d to %d when there is room for the items", in.Plan.Replicas, *in.Cluster.Spec.Size)
	if in.Room != nil {
		message += ": " + in.Room.Says(leaversHave)
	}
	return message
}
