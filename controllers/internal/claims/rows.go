package claims

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// MaxReason bounds the reason of a drain, in bytes; the kubelet may have given it.
const MaxReason = 64

// Row is a status' words about a drain, without its drainer's counts.
type Row struct {
	Claim           string
	Ordinal         int32
	Phase           cachev1alpha1.DrainPhase
	Reason, Message string
	// Since is when the drain entered its phase, for its reason.
	Since, LeavingSince, StartedAt *metav1.Time
	// Kept: the drainer was at work, and it is not known how far it is now. Its earlier count is
	// still shown.
	Kept bool
}

// Progress is the report of a drainer at work. With a Message it waits, for that Reason.
type Progress struct{ Reason, Message string }

// Rows has the facts that the rows of a status depend on, beside the plan.
type Rows struct {
	Now time.Time
	// Before are the rows of the present status.
	Before []Row
	// Marked has the claims that this reconcile marked as leaving, and when. Started has the creation
	// times of Jobs, and Waits says why their drainers are not at work. All are by the claim's UID.
	Marked  map[types.UID]time.Time
	Started map[types.UID]metav1.Time
	Waits   map[types.UID]Wait
	// Member returns the pod of the member with this ordinal, or nil.
	Member func(ordinal int32) *corev1.Pod
}

// Row begins the row of a drain. progress is that of its drainer; nil if it isn't known.
func (r *Rows) Row(d *DrainState, progress *Progress) Row {
	s := Row{
		Claim: d.Claim.Name, Ordinal: d.Claim.Ordinal,
		Phase: cachev1alpha1.DrainPhase(d.Phase), Reason: d.Reason, Message: r.waitsFor(d),
	}
	before := r.before(s.Claim)
	if t, ok := r.Marked[d.Claim.UID]; ok {
		s.LeavingSince = &metav1.Time{Time: t}
	} else if at, told := d.Claim.LeavingAt(); told {
		s.LeavingSince = &metav1.Time{Time: at}
	}
	if t, ok := r.Started[d.Claim.UID]; ok {
		s.StartedAt = &t
	} else if before != nil && d.Phase == Releasing {
		s.StartedAt = before.StartedAt // the drain's Job is gone
	}
	if d.Phase != Draining {
		return s
	}
	s.Phase = cachev1alpha1.DrainStarting
	switch wait, waits := r.Waits[d.Claim.UID]; {
	case waits:
		s.Reason, s.Message = wait.Reason, cmp.Or(s.Message, wait.Message)
	case progress != nil:
		s.Phase = cachev1alpha1.DrainAdding
		if progress.Message != "" {
			s.Reason, s.Message = progress.Reason, progress.Message
		}
	case before != nil && before.Phase == cachev1alpha1.DrainAdding:
		// The drainer's log could not be read, or the drainer has just ended.
		s = *before
		s.Kept = true
	}
	return s
}

// End bounds others' words in the row, and says since when the row holds.
func (r *Rows) End(s *Row) {
	s.Reason, s.Message = Bound(s.Reason, MaxReason), BoundMessage(s.Message)
	s.Since = r.since(s)
}

// before returns the claim's row of the present status, or nil.
func (r *Rows) before(claim string) *Row {
	i := slices.IndexFunc(r.Before, func(b Row) bool { return b.Claim == claim })
	if i < 0 {
		return nil
	}
	return &r.Before[i]
}

// since is when the drain entered its phase, for its reason. While no drainer is at work, all
// reasons count as one wait, because a survivor that doesn't answer ends one attempt after the
// other.
func (r *Rows) since(s *Row) *metav1.Time {
	if b := r.before(s.Claim); b != nil && b.Since != nil {
		if same := b.Phase == s.Phase && b.Reason == s.Reason; same || !b.atWork() && !s.atWork() {
			return b.Since
		}
	}
	return &metav1.Time{Time: r.Now}
}

// atWork tells whether a drainer is at work, rather than waiting to begin or to continue.
func (s *Row) atWork() bool {
	return s.Phase != cachev1alpha1.DrainStarting && (s.Phase != cachev1alpha1.DrainAdding || s.Reason == "")
}

// waitsFor says what a leaving member waits for. A cause that the operator can't change, such as a
// node that doesn't answer, replaces the plan's message: on which node the member doesn't end, and
// since when.
func (r *Rows) waitsFor(d *DrainState) string {
	if d.Phase != Waiting || d.Reason != PodPresent {
		return d.Message
	}
	pod := r.Member(d.Claim.Ordinal)
	if pod == nil || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
		return d.Message
	}
	asked := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		asked = asked.Add(-time.Duration(*grace) * time.Second)
	}
	return fmt.Sprintf("%s: on %s, since %s", d.Message, pod.Spec.NodeName, asked.UTC().Format(time.RFC3339))
}

// MostDrains bounds how many drains a status has.
const MostDrains = 32

// Shown are the drains that a status has room for, in their order. Drains that need a person or are
// at work are preferred to those that wait. of is the row of a drain.
func Shown[T any](drains []T, of func(*T) Row) []T {
	if len(drains) <= MostDrains {
		return drains
	}
	rank := func(i int) int {
		return slices.Index([]cachev1alpha1.DrainPhase{
			cachev1alpha1.DrainFailed, cachev1alpha1.DrainHeld, cachev1alpha1.DrainAdding, cachev1alpha1.DrainStarting,
			cachev1alpha1.DrainReleasing, cachev1alpha1.DrainLeaving, cachev1alpha1.DrainWaiting,
		}, of(&drains[i]).Phase)
	}
	order := make([]int, len(drains))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	order = order[:MostDrains]
	slices.Sort(order)
	out := make([]T, MostDrains)
	for i, from := range order {
		out[i] = drains[from]
	}
	return out
}

// NewlyFailed returns the drains that failed between two statuses. of is the row of a drain.
func NewlyFailed[T any](before, after []T, of func(*T) Row) []T {
	failed := func(d T) bool { return of(&d).Phase == cachev1alpha1.DrainFailed }
	return slices.DeleteFunc(slices.Clone(after), func(d T) bool {
		known := slices.ContainsFunc(before, func(b T) bool { return of(&b).Claim == of(&d).Claim && failed(b) })
		return known || !failed(d)
	})
}

// MostLast is how many ended drains a status keeps.
const MostLast = 5

// AddLast adds a drain whose claim is being released, newest first, each once. If a live check refused a
// release, the next release may have another result. of tells which claim it was, and the result.
func AddLast[T any](last []T, next T, of func(*T) (claim, result string)) []T {
	claim, result := of(&next)
	known := slices.IndexFunc(last, func(r T) bool {
		was, _ := of(&r)
		return was == claim
	})
	switch {
	case known < 0:
		last = slices.Insert(last, 0, next)
	default:
		if _, was := of(&last[known]); was != result {
			last = slices.Insert(slices.Delete(last, known, known+1), 0, next)
		}
	}
	return last[:min(len(last), MostLast)]
}
