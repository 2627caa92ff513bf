package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// toPlace adds a member whose items have to be placed.
func (in *Input) toPlace(ordinal int32, phase plan.PlacementPhase, reason, message string) *Input {
	in.Plan.Placements = append(in.Plan.Placements, plan.PlacementState{
		Claim: claim.Claim{Name: build.ClaimName("cache", ordinal), UID: types.UID(build.ClaimName("", ordinal)), Ordinal: ordinal},
		Phase: phase, Reason: reason, Message: message,
	})
	return in
}

func TestPlacingTellsWhoseItemsAreMoved(t *testing.T) {
	moving := func(in *Input) {
		in.Progress = map[types.UID]contract.Progress{in.Plan.Placements[0].Claim.UID: {Phase: contract.PhaseMoving, ItemsDone: 3, ItemsTotal: 9}}
	}
	off := func(in *Input) {
		in.Cluster.Spec.Routing.Placement = cachev1alpha1.PlacementOff
		in.Ring = ring.Record{}.Next(build.RingOf(in.Cluster, 1)).Next(build.RingOf(in.Cluster, 2))
	}
	for what, test := range map[string]struct {
		in                      *Input
		status, reason, message string
		phase                   cachev1alpha1.Phase
		progress                string
	}{
		"nothing":          {input(2), "False", "AllPlaced", "", "Running", ""},
		"waiting":          {input(2).toPlace(0, plan.PlacementWaits, "PlacementWaits", "member 1 is not ready"), "True", "PlacementWaits", "member 1 is not ready", "Placing", "1 to place"},
		"one moves":        {input(2).toPlace(1, plan.PlacementRuns, "", "").toPlace(0, plan.PlacementWaits, "InTurn", "").with(moving), "True", "Placing", "member 1 (3 of 9 items)", "Placing", "2 to place (3/9 items)"},
		"failed":           {input(2).toPlace(0, plan.PlacementFailed, "StillStored", "clients still store"), "False", "PlacementFailed", "1", "Degraded", "1 to place"},
		"one failed":       {input(2).toPlace(1, plan.PlacementFailed, "JobFailed", "").toPlace(0, plan.PlacementRuns, "", ""), "True", "Placing", "member 0", "Degraded", "2 to place"},
		"switched off":     {input(2).with(off), "False", "PlacementOff", "about 48%", "Running", ""},
		"off, not due":     {input(2).with(off).with(func(in *Input) { in.Ring.From = ring.Ring{} }), "False", "AllPlaced", "", "Running", ""},
		"hibernated":       {input(0), "False", "Hibernated", "", "Hibernated", ""},
		"a drain goes on":  {input(1).leaving(1, plan.Draining, "", "").toPlace(0, plan.PlacementWaits, "PlacementWaits", "claim data-cache-1 is drained first"), "True", "PlacementWaits", "drained first", "Draining", "Starting"},
		"size held for it": {input(2).toPlace(0, plan.PlacementRuns, "", "").with(func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](1), plan.BlockedByPlacement }), "True", "Placing", "", "Placing", "1 to place"},
	} {
		t.Run(what, func(t *testing.T) {
			s := compute(t, test.in)
			c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionPlacing)
			if c == nil || string(c.Status) != test.status || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
				t.Errorf("condition %+v", c)
			}
			if s.Phase != test.phase || s.Progress != test.progress || int(s.Placing) != len(test.in.Plan.Placements) {
				t.Errorf("phase %s, progress %q, %d to place", s.Phase, s.Progress, s.Placing)
			}
		})
	}
	s := compute(t, input(2).toPlace(0, plan.PlacementRuns, "", "").with(func(in *Input) {
		in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](1), plan.BlockedByPlacement
	}))
	if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing); c.Reason != cachev1alpha1.ReasonWaitingForPlacement || !strings.Contains(c.Message, "from 2 to 1") {
		t.Errorf("progressing %+v", c)
	}
}
