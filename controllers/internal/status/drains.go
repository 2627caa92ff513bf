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
	"example.com/memcached-operator/controllers/internal/receipt"
	"example.com/memcached-operator/drainer/contract"
)

// Wait is why a Job has no drainer at work, and since when.
type Wait struct {
	Reason, Message string
	Since           time.Time
}

// follow sets the status of a drain whose Job is active.
func follow(in *Input, d *claims.DrainState, s *cachev1alpha1.DrainStatus) {
	s.Phase = cachev1alpha1.DrainStarting
	wait, waits := in.Waits[d.Claim.UID]
	switch p, ok := in.Progress[d.Claim.UID]; {
	case waits:
		s.Reason, s.Message = wait.Reason, cmp.Or(s.Message, wait.Message)
	case ok:
		s.Phase = cachev1alpha1.DrainAdding
		s.ItemsDone, s.ItemsTotal = p.ItemsDone, p.ItemsTotal
		s.BytesDone, s.BytesTotal = p.BytesDone, p.BytesTotal
		s.TimeLeft = timeLeft(&p)
		if p.Message != "" {
			s.Reason, s.Message = cachev1alpha1.ReasonSurvivorUnreachable, p.Message
		}
	case wasMoving(in, d):
		// The drainer's log could not be read, or the drainer has just ended.
		*s = *before(in, d)
	}
}

// followLeaving sets the status of a leaving member that still runs.
func followLeaving(in *Input, d *claims.DrainState, s *cachev1alpha1.DrainStatus) {
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
	if ok {
		s.ItemsDone, s.ItemsTotal = p.ItemsDone, p.ItemsTotal
	}
}

// itemsMoved is how many items were moved while the member ran: by its mover's receipt as long as
// the Job exists, and later by the present status.
func itemsMoved(in *Input, d *claims.DrainState) int64 {
	if d.Mover != nil && d.Mover.State == claims.JobComplete && d.Mover.Receipt != nil {
		return receipt.Numbers(d.Mover.Receipt).Added
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

// mostLeft bounds an estimate: a drainer that has just begun may seem to need longer than a duration can say.
const mostLeft = 365 * 24 * time.Hour

// since is when the drain entered its phase, for its reason. While no drainer is at work, all
// reasons count as one wait, because a survivor that doesn't answer ends one attempt after the
// other.
func since(in *Input, s *cachev1alpha1.DrainStatus) *metav1.Time {
	for i := range in.Cluster.Status.Drains {
		b := &in.Cluster.Status.Drains[i]
		same := b.Phase == s.Phase && b.Reason == s.Reason || !atWork(b) && !atWork(s)
		if b.Claim == s.Claim && same && b.Since != nil {
			return b.Since
		}
	}
	return &metav1.Time{Time: in.Now}
}

// atWork tells whether a drainer is at work, rather than waiting to begin or to continue.
func atWork(s *cachev1alpha1.DrainStatus) bool {
	return s.Phase != cachev1alpha1.DrainStarting && (s.Phase != cachev1alpha1.DrainAdding || s.Reason == "")
}

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

// shown are the drains that status has room for, in their order. Drains that need a person or are
// at work are preferred to those that wait.
func shown(drains []cachev1alpha1.DrainStatus) []cachev1alpha1.DrainStatus {
	if len(drains) <= maxDrains {
		return drains
	}
	rank := func(d *cachev1alpha1.DrainStatus) int {
		return slices.Index([]cachev1alpha1.DrainPhase{
			cachev1alpha1.DrainFailed, cachev1alpha1.DrainHeld, cachev1alpha1.DrainAdding, cachev1alpha1.DrainStarting,
			cachev1alpha1.DrainReleasing, cachev1alpha1.DrainLeaving, cachev1alpha1.DrainWaiting,
		}, d.Phase)
	}
	order := make([]int, len(drains))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(&drains[a]), rank(&drains[b])) })
	order = order[:maxDrains]
	slices.Sort(order)
	out := make([]cachev1alpha1.DrainStatus, maxDrains)
	for i, from := range order {
		out[i] = drains[from]
	}
	return out
}

// NewlyFailed returns the drains that failed between two statuses.
func NewlyFailed(before, after []cachev1alpha1.DrainStatus) []cachev1alpha1.DrainStatus {
	failed := func(d cachev1alpha1.DrainStatus) bool { return d.Phase == cachev1alpha1.DrainFailed }
	return slices.DeleteFunc(slices.Clone(after), func(d cachev1alpha1.DrainStatus) bool {
		known := slices.ContainsFunc(before, func(b cachev1alpha1.DrainStatus) bool { return b.Claim == d.Claim && failed(b) })
		return known || !failed(d)
	})
}
