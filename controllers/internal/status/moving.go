package status

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// moving is nil if all items are where clients look for them, or no member is wanted.
func moving(in *Input) *metav1.Condition {
	const kind = cachev1alpha1.ConditionMoving
	if in.Cluster.Spec.Storage == nil {
		return nil
	}
	failed, running := 0, 0
	waits := ""
	for i := range in.Plan.Moves {
		switch p := &in.Plan.Moves[i]; p.Phase {
		case plan.MoveFailed:
			failed++
		case plan.MoveRuns:
			running++
		case plan.MoveWaits:
			waits = cmp.Or(waits, p.Message)
		}
	}
	switch n := len(in.Plan.Moves); {
	case n > 0 && failed == n:
		return says(kind, false, cachev1alpha1.ReasonMoveFailed, "failed moves: %d", n)
	case n > 0 && running == 0:
		return says(kind, true, cachev1alpha1.ReasonMoveWaits, "members whose items are to be moved: %d; %s", n, waits)
	case n > 0:
		return says(kind, true, cachev1alpha1.ReasonMoving, "members whose items are to be moved: %d; under way: %s", n, underWay(in))
	case in.Cluster.Spec.Routing.Moves == cachev1alpha1.MovesOff && in.Ring.From.Size > 0:
		return says(kind, false, cachev1alpha1.ReasonMovesOff,
			"since the clients' list went from %d to %d servers, or the routing changed, clients look elsewhere for about %.0f%% of all keys "+
				"although the members that have them stay: routing.moves is Off, so they are not moved",
			in.Ring.From.Size, in.Ring.Ring.Size, math.Max(1, 100*ring.Share(in.Ring.From, in.Ring.Ring)))
	}
	return nil
}

// underWay names the members whose items are being moved, and how far the moves are.
func underWay(in *Input) string {
	var parts []string
	for i := range in.Plan.Moves {
		p := &in.Plan.Moves[i]
		if p.Phase != plan.MoveRuns {
			continue
		}
		part := fmt.Sprintf("member %d", p.Claim.Ordinal)
		switch progress, ok := in.Progress[p.Claim.UID]; {
		case in.Waits[p.Claim.UID].Message != "":
			part += fmt.Sprintf(" (%s)", in.Waits[p.Claim.UID].Message)
		case ok && progress.Message != "":
			part += fmt.Sprintf(" (%s)", progress.Message)
		case ok:
			part += fmt.Sprintf(" (%d of %d items)", progress.ItemsDone, progress.ItemsTotal)
		}
		parts = append(parts, part)
	}
	if n := len(parts) - maxNamed; n > 0 {
		parts = append(parts[:maxNamed], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, ", ")
}

// latePercent is the largest share of a member's requests that clients still make by an earlier list.
func latePercent(in *Input) int32 {
	late := 0.0
	for _, p := range in.Progress {
		late = max(late, p.Late)
	}
	return int32(math.Ceil(100 * late))
}

// moveLine sums up the moves for the printer column.
func moveLine(in *Input) string {
	if len(in.Plan.Moves) == 0 {
		return ""
	}
	var items, total int64
	for i := range in.Plan.Moves {
		p := in.Progress[in.Plan.Moves[i].Claim.UID]
		items, total = items+p.ItemsDone, total+p.ItemsTotal
	}
	line := fmt.Sprintf("%d to move", len(in.Plan.Moves))
	if total > 0 {
		line += fmt.Sprintf(" (%d/%d items)", items, total)
	}
	return line
}
