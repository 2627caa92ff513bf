package status

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// progressOf is the report of the claim's drainer; nil if it isn't known.
func progressOf(in *Input, d *claims.DrainState) (*contract.Progress, *claims.Progress) {
	p, ok := in.Progress[d.Claim.UID]
	if !ok {
		return &p, nil
	}
	return &p, &claims.Progress{Reason: cachev1alpha1.ReasonSurvivorUnreachable, Message: p.Message}
}

// followLeaving says what a leaving member that still runs waits for.
func followLeaving(in *Input, d *claims.DrainState, s *claims.Row) {
	p, ok := in.Progress[d.Claim.UID]
	switch wait, waits := in.Waits[d.Claim.UID]; {
	case s.Reason != "":
	case waits:
		s.Reason, s.Message = wait.Reason, wait.Message
	case ok && p.Phase == contract.PhaseSettling:
		s.Reason, s.Message = cachev1alpha1.ReasonStillCalled, cmp.Or(p.Message, "it leaves when no client has called it for some seconds")
	case ok && p.Message != "":
		s.Reason, s.Message = cachev1alpha1.ReasonSurvivorUnreachable, p.Message
	}
}

// itemsMoved is how many items were moved while the member ran: by its mover's receipt as long as
// the Job exists, and later by the present status.
func itemsMoved(in *Input, d *claims.DrainState) int64 {
	if d.Mover != nil && d.Mover.State == claims.JobComplete && d.Mover.Receipt != nil {
		return plan.ReceiptNumbers(d.Mover.Receipt).Added
	}
	if p, ok := in.Progress[d.Claim.UID]; ok && d.Mover != nil && d.Mover.State == claims.JobActive {
		return p.ItemsDone
	}
	if b := before(in, d); b != nil {
		return b.ItemsMoved
	}
	return 0
}

// timeLeft estimates the remaining time from the bytes of the volume and the speed so far, in whole
// seconds; nil if they are not known, or while the drain waits for a survivor.
func timeLeft(p *contract.Progress) *metav1.Duration {
	const enough = 1 // seconds
	if p.Phase != contract.PhaseAdding || p.Message != "" || p.Seconds < enough || p.BytesDone <= 0 || p.BytesTotal <= p.BytesDone {
		return nil
	}
	seconds := math.Ceil(p.Seconds * float64(p.BytesTotal-p.BytesDone) / float64(p.BytesDone))
	return &metav1.Duration{Duration: time.Duration(min(seconds, mostLeft.Seconds())) * time.Second}
}

// mostLeft bounds an estimate: a drainer that has just begun may seem to need longer than a duration can
// hold.
const mostLeft = 365 * 24 * time.Hour

// longest is the longest estimate, for the printer column.
func longest(drains []cachev1alpha1.DrainStatus) string {
	var left time.Duration
	for i := range drains {
		if estimate := drains[i].TimeLeft; estimate != nil {
			left = max(left, estimate.Duration)
		}
	}
	if left == 0 {
		return ""
	}
	return fmt.Sprintf(", %s left", left)
}

// NewlyNotMoved returns the receipts of members without volumes that left with items between the two statuses.
func NewlyNotMoved(before, after *cachev1alpha1.Memcached) (lost []cachev1alpha1.DrainReceipt) {
	if !after.Spec.InPods() {
		return nil
	}
	for _, r := range after.Status.LastDrains {
		known := slices.ContainsFunc(before.Status.LastDrains, func(b cachev1alpha1.DrainReceipt) bool { return b.ClaimUID == r.ClaimUID })
		if !known && (r.Result == string(action.BySkip) || r.Result == string(action.NotMoved)) {
			lost = append(lost, r)
		}
	}
	return lost
}
