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

// placing tells whether items are being moved to the members where clients look for them.
func placing(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionPlacing
	failed, running := 0, 0
	waits := ""
	for i := range in.Plan.Placements {
		switch p := &in.Plan.Placements[i]; p.Phase {
		case plan.PlacementFailed:
			failed++
		case plan.PlacementRuns:
			running++
		case plan.PlacementWaits:
			waits = cmp.Or(waits, p.Message)
		}
	}
	switch n := len(in.Plan.Placements); {
	case n > 0 && failed == n:
		return condition(kind, false, cachev1alpha1.ReasonPlacementFailed, "failed placements: %d", n)
	case n > 0 && running == 0:
		return condition(kind, true, cachev1alpha1.ReasonPlacementWaits, "members whose items are to be placed: %d; %s", n, waits)
	case n > 0:
		return condition(kind, true, cachev1alpha1.ReasonPlacing, "members whose items are to be placed: %d; under way: %s", n, underWay(in))
	case in.Cluster.Spec.Routing.Placement == cachev1alpha1.PlacementOff && in.Ring.From.Size > 0:
		return condition(kind, false, cachev1alpha1.ReasonPlacementOff,
			"since the clients' list went from %d to %d servers, or the routing changed, clients look elsewhere for about %.0f%% of all keys "+
				"although the members that have them stay: routing.placement is Off, so they are not moved",
			in.Ring.From.Size, in.Ring.Ring.Size, math.Max(1, 100*ring.Share(in.Ring.From, in.Ring.Ring)))
	case *in.Cluster.Spec.Size == 0 && in.Plan.Replicas == 0:
		return condition(kind, false, cachev1alpha1.ReasonHibernated, "size is 0: items are placed when members return")
	}
	return condition(kind, false, cachev1alpha1.ReasonAllPlaced, "no member has items that clients look for elsewhere")
}

// underWay names the members that are being placed, and how far they are.
func underWay(in *Input) string {
	var parts []string
	for i := range in.Plan.Placements {
		p := &in.Plan.Placements[i]
		if p.Phase != plan.PlacementRuns {
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

// placementLine sums up the placements for the column.
func placementLine(in *Input) string {
	if len(in.Plan.Placements) == 0 {
		return ""
	}
	var items, total int64
	for i := range in.Plan.Placements {
		p := in.Progress[in.Plan.Placements[i].Claim.UID]
		items, total = items+p.ItemsDone, total+p.ItemsTotal
	}
	line := fmt.Sprintf("%d to place", len(in.Plan.Placements))
	if total > 0 {
		line += fmt.Sprintf(" (%d/%d items)", items, total)
	}
	return line
}
