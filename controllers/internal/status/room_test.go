package status

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

func TestConditionTellsOfTooLittleRoomUntilTheVolumesAreGone(t *testing.T) {
	told := metav1.Condition{Type: cachev1alpha1.ConditionShortOfMemory, Status: "True", Reason: "ShortOfMemory", Message: "told"}
	room := func(r plan.Room) func(*Input) { return func(in *Input) { in.Room = &r } }
	before := func(in *Input) { in.Cluster.Status.Conditions = []metav1.Condition{told} }
	for name, test := range map[string]struct {
		in      *Input
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"at rest":  {input(2), "False", "EnoughMemory", "no member is about to leave"},
		"they fit": {input(3).with(room(plan.Room{Leaving: 1 << 20, Free: 3 << 19})), "False", "EnoughMemory", "the leaving members have 1.0 MiB of items, the survivors have 1.5 MiB free"},
		"they don't": {
			input(3).with(room(plan.Room{Leaving: 2 << 20, Free: 1 << 20})), "True", "ShortOfMemory",
			"the leaving members have 2.0 MiB of items, the survivors have 1.0 MiB free: what was used least recently will be evicted",
		},
		"they don't, and stay": {
			input(3).with(room(plan.Room{Leaving: 2 << 20, Free: 1 << 20})).with(func(in *Input) { in.Plan.SizeBlocked = plan.BlockedByShortage }), "True", "ShortOfMemory",
			"the leaving members have 2.0 MiB of items, the survivors have 1.0 MiB free: no member leaves until there is room",
		},
		"no member can tell": {
			input(3).with(room(plan.Room{Leaving: 9, Unknown: "pod cache-1: timeout"})), "Unknown", "MemoryUnknown",
			"it is not known whether the items fit: pod cache-1: timeout",
		},
		"a pod is on its way":  {input(3).with(before).with(func(in *Input) { in.Plan.Replicas = 2 }), "True", "ShortOfMemory", "told"},
		"a drain runs":         {input(2).with(before).leaving(2, plan.Draining, "", ""), "True", "ShortOfMemory", "told"},
		"the volumes are gone": {input(2).with(before), "False", "EnoughMemory", "no member is about to leave"},
	} {
		s := compute(t, test.in)
		c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionShortOfMemory)
		if c.Status != test.status || c.Reason != test.reason || c.Message != test.message {
			t.Errorf("%s: got %s %s: %s", name, c.Status, c.Reason, c.Message)
		}
	}
}
