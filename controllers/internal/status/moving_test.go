package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// toMove adds a member whose items have to be moved.
func (in *Input) toMove(ordinal int32, phase plan.MovePhase, reason, message string) *Input {
	in.Plan.Moves = append(in.Plan.Moves, plan.MoveState{
		Claim: claims.Claim{Name: build.ClaimName("cache", ordinal), UID: types.UID(build.ClaimName("", ordinal)), Ordinal: ordinal},
		Phase: phase, Reason: reason, Message: message,
	})
	return in
}

func TestMovingTellsWhoseItemsAreMoved(t *testing.T) {
	moving := func(in *Input) {
		in.Progress = map[types.UID]contract.Progress{in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseAdding, ItemsDone: 3, ItemsTotal: 9}}
	}
	off := func(in *Input) {
		in.Cluster.Spec.Routing.Moves = cachev1alpha1.MovesOff
		in.Ring = ring.Record{}.Next(build.RingOf(in.Cluster, 1)).Next(build.RingOf(in.Cluster, 2))
	}
	for what, test := range map[string]struct {
		in                      *Input
		status, reason, message string
		phase                   cachev1alpha1.Phase
		progress                string
	}{
		"nothing":          {input(2), "", "", "", "Running", ""},
		"waiting":          {input(2).toMove(0, plan.MoveWaits, "MoveWaits", "member 1 is not ready"), "True", "MoveWaits", "member 1 is not ready", "Moving", "1 to move"},
		"one moves":        {input(2).toMove(1, plan.MoveRuns, "", "").toMove(0, plan.MoveWaits, "InTurn", "").with(moving), "True", "Moving", "member 1 (3 of 9 items)", "Moving", "2 to move (3/9 items)"},
		"failed":           {input(2).toMove(0, plan.MoveFailed, "StillStored", "clients still store"), "False", "MoveFailed", "1", "Degraded", "1 to move"},
		"one failed":       {input(2).toMove(1, plan.MoveFailed, "JobFailed", "").toMove(0, plan.MoveRuns, "", ""), "True", "Moving", "member 0", "Degraded", "2 to move"},
		"switched off":     {input(2).with(off), "False", "MovesOff", "about 48%", "Running", ""},
		"off, not due":     {input(2).with(off).with(func(in *Input) { in.Ring.From = ring.Ring{} }), "", "", "", "Running", ""},
		"hibernated":       {input(0), "", "", "", "Hibernated", ""},
		"a drain goes on":  {input(1).leaving(1, claims.Draining, "", "").toMove(0, plan.MoveWaits, "MoveWaits", "claim data-cache-1 is drained first"), "True", "MoveWaits", "drained first", "Draining", "Starting"},
		"size held for it": {input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](1), plan.BlockedByMove }), "True", "Moving", "", "Moving", "1 to move"},
	} {
		t.Run(what, func(t *testing.T) {
			s := compute(t, test.in)
			c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionMoving)
			if reasonOf(c) != test.reason || c != nil && string(c.Status) != test.status || !strings.Contains(messageOf(c), test.message) {
				t.Errorf("condition %+v", c)
			}
			if s.Phase != test.phase || s.Progress != test.progress || int(s.Moving) != len(test.in.Plan.Moves) {
				t.Errorf("phase %s, progress %q, %d to move", s.Phase, s.Progress, s.Moving)
			}
		})
	}
	s := compute(t, input(2).toMove(0, plan.MoveRuns, "", "").with(func(in *Input) {
		in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](1), plan.BlockedByMove
	}))
	if c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing); c.Reason != cachev1alpha1.ReasonWaitingForMove || !strings.Contains(c.Message, "from 2 to 1") {
		t.Errorf("progressing %+v", c)
	}
}

// The late share is that of the member with the largest one.
func TestTheLateShareIsTheLargest(t *testing.T) {
	in := input(3).toMove(1, plan.MoveRuns, "", "").toMove(0, plan.MoveRuns, "", "")
	if s := compute(t, in); s.LatePercent != 0 {
		t.Errorf("%d %% are late, and no mover says so", s.LatePercent)
	}
	in.Progress = map[types.UID]contract.Progress{
		in.Plan.Moves[0].Claim.UID: {Phase: contract.PhaseSettling, Late: 0.101},
		in.Plan.Moves[1].Claim.UID: {Phase: contract.PhaseSettling, Late: 0.42},
	}
	if s := compute(t, in); s.LatePercent != 42 {
		t.Errorf("%d %% are late, want 42", s.LatePercent)
	}
}
