package status

import (
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"

	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

func TestAdviceTellsOfTooLittleRoomUntilTheVolumesAreGone(t *testing.T) {
	const short, unknown = cachev1alpha1.ReasonShortOfMemory, cachev1alpha1.ReasonMemoryUnknown
	room := func(r plan.Room) func(*Input) { return func(in *Input) { in.Room = &r } }
	waits := func(in *Input) { in.Cluster.Spec.Drain.OnShortage = cachev1alpha1.ShortageWait }
	before := func(in *Input) { in.Cluster.Status.Advice = []cachev1alpha1.Advice{{Reason: short, Message: "told"}} }
	blocked := func(in *Input) { in.Plan.SizeBlocked = plan.BlockedByDrain }
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
	}{
		"at rest":  {input(2), "", ""},
		"they fit": {input(3).with(room(plan.Room{Leaving: 1 << 20, Paged: true})), "", ""},
		"they don't": {
			input(3).with(room(plan.Room{Leaving: 2 << 20, Evicted: 1 << 20})), short,
			"the leaving members have 2.0 MiB of items, for which members would evict 1.0 MiB, counted in bytes: what was used least recently will be evicted",
		},
		"they don't, by pages, and little": {
			input(3).with(room(plan.Room{Leaving: 2 << 20, Evicted: 1, Paged: true})), short,
			"for which members would evict 0.1 MiB, counted in size classes and their pages: what was",
		},
		"no member can tell, and the spec asks to wait": {
			input(3).with(waits).with(room(plan.Room{Leaving: 9, Unknown: "pod cache-1: timeout"})), unknown,
			"it is not known whether the items of the leaving members fit on the survivors: pod cache-1: timeout",
		},
		"no member can tell, and it changes nothing": {input(3).with(room(plan.Room{Leaving: 9, Unknown: "pod cache-1: timeout"})), "", ""},
		"a pod is on its way":                        {input(3).with(before).with(func(in *Input) { in.Plan.Replicas = 2 }), short, "told"},
		"a drain runs":                               {input(2).with(before).leaving(2, claims.Draining, "", ""), short, "told"},
		"the volumes are gone":                       {input(2).with(before), "", ""},
		"they don't, and the size waits for another drain": {
			input(3).with(room(plan.Room{Leaving: 2 << 20, Evicted: 1 << 20})).with(blocked), "", "",
		},
		"a drain runs, and the next size waits for it": {
			input(2).with(before).leaving(2, claims.Draining, "", "").with(room(plan.Room{Leaving: 2 << 20, Evicted: 1 << 20})).with(blocked), short, "told",
		},
		"the next ones have room": {input(3).with(before).with(room(plan.Room{Leaving: 1})), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			advice := compute(t, test.in).Advice
			for _, reason := range []string{short, unknown} {
				want := ""
				if reason == test.reason {
					want = test.message
				}
				checkAdvice(t, advice, reason, want)
			}
		})
	}
}

// A size that waits for room needs a person: Degraded says so, and no advice says it again.
func TestASizeThatWaitsForRoomSaysHowMuchIsMissing(t *testing.T) {
	s := compute(t, input(3).with(func(in *Input) {
		size := int32(2)
		in.Cluster.Spec.Size, in.Plan.SizeBlocked = &size, plan.BlockedByShortage
		in.Room = &plan.Room{Leaving: 2 << 20, Evicted: 1 << 20}
	}))
	const want = "the size goes from 3 to 2 when there is room for the items: the leaving members have 2.0 MiB of items, for which members would evict 1.0 MiB, counted in bytes"
	for _, kind := range []string{cachev1alpha1.ConditionDegraded, cachev1alpha1.ConditionProgressing} {
		if c := meta.FindStatusCondition(s.Conditions, kind); c.Reason != cachev1alpha1.ReasonShortOfMemory || c.Message != want {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	checkAdvice(t, s.Advice, cachev1alpha1.ReasonShortOfMemory, "")
}
