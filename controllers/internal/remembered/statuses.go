package remembered

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
)

// detailInterval is how long a status waits if only details are new, because a starting or draining
// owner has several new details in a moment. A step that is tried again, and denied again, changes nothing.
const detailInterval = 2 * time.Second

// callersInterval is how long a status waits if only the clients that still call a leaving member, or are late,
// have changed, because that may continue for hours.
const callersInterval = 30 * time.Second

// Statuses remembers since when details of a status have been waiting to be written.
type Statuses struct{ kept ByObject[statusTimes] }

type statusTimes struct {
	// details is since when a detail has been waiting to be written.
	details time.Time
	// upToDate is when the status was last up to date.
	upToDate time.Time
}

// Note notes that no detail of the status is waiting any more.
func (s *Statuses) Note(key client.ObjectKey, now time.Time) {
	s.kept.Use(key, func(last *statusTimes) { *last = statusTimes{upToDate: now} })
}

// Forget forgets an owner that is gone.
func (s *Statuses) Forget(key client.ObjectKey) { s.kept.Forget(key) }

// Change is the difference between two statuses. Changes that people and programs wait for are urgent. All
// others are details, and are written together.
type Change struct {
	Urgent bool
	// Counts: a drainer is at work, and counts.
	Counts bool
	// Callers: a leaving member waits for its last client, or moves for clients that are late. Callers also do between
	// two of their waits, when what clients have stored meanwhile is moved.
	Callers bool
}

// Due is how long a new status can wait.
func (s *Statuses) Due(key client.ObjectKey, change Change, now time.Time) time.Duration {
	if change.Urgent {
		return 0
	}
	var due time.Time
	s.kept.Use(key, func(last *statusTimes) {
		if last.details.IsZero() {
			last.details = now
		}
		due = last.details.Add(detailInterval)
		if change.Callers {
			due = last.details.Add(callersInterval)
		}
		// Progress is new in every reconcile. If progress also waited for detailInterval, the time between
		// two writes would double.
		if next := last.upToDate.Add(ask.ProgressInterval); change.Counts && next.Before(due) {
			due = next
		}
	})
	return max(0, due.Sub(now))
}

// ClusterChange is the difference between two statuses of a Memcached.
func ClusterChange(before, after *cachev1alpha1.MemcachedStatus) Change {
	return Change{
		Urgent: before.ObservedGeneration != after.ObservedGeneration || before.Phase != after.Phase ||
			!equality.Semantic.DeepEqual(before.Servers, after.Servers) ||
			!equality.Semantic.DeepEqual(before.LastDrains, after.LastDrains) || leaving(before) > leaving(after) || advises(before, after) ||
			// The other conditions change with the phase, or are details.
			differ(before.Conditions, after.Conditions, cachev1alpha1.ConditionReady, cachev1alpha1.ConditionAvailable, cachev1alpha1.ConditionDegraded),
		Counts:  moving(after) && !waitsForClients(before),
		Callers: waitsForClients(before) && (waitsForClients(after) || moving(after) || after.Moving > 0),
	}
}

// DrainChange is the difference between two statuses of a StatefulSetDrain.
func DrainChange(before, after *cachev1alpha1.StatefulSetDrainStatus) Change {
	return Change{
		Urgent: before.ObservedGeneration != after.ObservedGeneration || before.Replicas != after.Replicas ||
			len(before.Drains) != len(after.Drains) || !equality.Semantic.DeepEqual(before.LastDrains, after.LastDrains) ||
			differ(before.Conditions, after.Conditions, cachev1alpha1.ConditionReady, cachev1alpha1.ConditionDegraded),
		Counts: slices.ContainsFunc(after.Drains, func(d cachev1alpha1.MemberDrain) bool { return d.Phase == cachev1alpha1.DrainAdding }),
	}
}

// differ tells whether one of these conditions has another status.
func differ(before, after []metav1.Condition, kinds ...string) bool {
	return slices.ContainsFunc(after, func(c metav1.Condition) bool {
		return slices.Contains(kinds, c.Type) && !meta.IsStatusConditionPresentAndEqual(before, c.Type, c.Status)
	})
}

// moving tells whether a drainer is at work. A mover that only waits for the last client doesn't
// count: it may wait for hours, and reports every few seconds which clients call.
func moving(s *cachev1alpha1.MemcachedStatus) bool {
	return s.Warm != nil && s.Warm.Phase == cachev1alpha1.WarmCopying || slices.ContainsFunc(s.Drains, func(d cachev1alpha1.DrainStatus) bool {
		return d.Phase == cachev1alpha1.DrainAdding || d.Phase == cachev1alpha1.DrainLeaving && d.Reason != cachev1alpha1.ReasonStillCalled
	})
}

// waitsForClients tells whether a leaving member waits for its last client, or moves for clients that are late.
func waitsForClients(s *cachev1alpha1.MemcachedStatus) bool {
	return s.LatePercent > 0 || slices.ContainsFunc(s.Drains, func(d cachev1alpha1.DrainStatus) bool { return d.Reason == cachev1alpha1.ReasonStillCalled })
}

// advises tells whether there is advice of another reason. The members' room is known only before
// they leave.
func advises(before, after *cachev1alpha1.MemcachedStatus) bool {
	return slices.ContainsFunc(after.Advice, func(a cachev1alpha1.Advice) bool {
		return !slices.ContainsFunc(before.Advice, func(b cachev1alpha1.Advice) bool { return b.Reason == a.Reason })
	})
}

// leaving counts the members that run on. When one of them leaves, the Job that knows how
// many items it gave away goes: then only the status has that number.
func leaving(s *cachev1alpha1.MemcachedStatus) (n int) {
	for i := range s.Drains {
		if s.Drains[i].Phase == cachev1alpha1.DrainLeaving {
			n++
		}
	}
	return n
}
