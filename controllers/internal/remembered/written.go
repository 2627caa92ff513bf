package remembered

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
)

// detailInterval is how long a status waits if only details are new, because a starting or draining
// cluster has several new details in a moment.
const detailInterval = 2 * time.Second

// callersInterval is how long a status waits if only the clients that still call a leaving member
// have changed, because that may continue for hours.
const callersInterval = 30 * time.Second

// Written remembers our last write of each Memcached, as the API server answered it. The next
// reconcile may come before the cache has the write. It would start from an older object, and its
// writes would be refused. Written also remembers since when details of a status have been waiting
// to be written.
type Written struct{ kept Of[lastWrite] }

type lastWrite struct {
	// object is the Memcached that was written; nil once the cache has it. at is when it was
	// written. from is the generation before all writes that the cache doesn't have: the write of a
	// missing size makes a new generation.
	object *cachev1alpha1.Memcached
	from   int64
	at     time.Time
	// details is since when a detail has been waiting to be written.
	details time.Time
	// status is when the status was last up to date.
	status time.Time
}

// remembersFor is how long a write is remembered. A cache is never stale for so long while its
// watch works. But after etcd was restored, versions are smaller than the write's again, and may
// stay smaller for days.
const remembersFor = 30 * time.Second

// yields tells whether the cached Memcached counts, even with a smaller version: the write is too
// old, or another client has changed, deleted or restored the Memcached since.
func (l *lastWrite) yields(cached *cachev1alpha1.Memcached, now time.Time) bool {
	return now.Sub(l.at) >= remembersFor || cached.UID != l.object.UID || cached.Generation < l.from || cached.Generation > l.object.Generation ||
		cached.DeletionTimestamp != nil && l.object.DeletionTimestamp == nil
}

// Newest returns the cached Memcached, or our later write.
func (w *Written) Newest(cached *cachev1alpha1.Memcached, now time.Time) *cachev1alpha1.Memcached {
	newest := cached
	w.kept.Use(client.ObjectKeyFromObject(cached), func(last *lastWrite) {
		if last.object == nil {
			return
		}
		if last.yields(cached, now) {
			last.object = nil
			return
		}
		if newer, err := resourceversion.CompareResourceVersion(last.object.ResourceVersion, cached.ResourceVersion); err == nil && newer > 0 {
			newest = last.object.DeepCopy()
			return
		}
		last.object = nil
	})
	return newest
}

// Note remembers the Memcached as the API server answered the write. from is its generation before.
func (w *Written) Note(cluster *cachev1alpha1.Memcached, from int64, now time.Time) {
	w.kept.Use(client.ObjectKeyFromObject(cluster), func(last *lastWrite) {
		if last.object == nil || last.object.UID != cluster.UID || from < last.from {
			last.from = from
		}
		last.object, last.at = cluster.DeepCopy(), now
	})
}

// NoteStatus notes that no detail of the status is waiting any more.
func (w *Written) NoteStatus(cluster *cachev1alpha1.Memcached, now time.Time) {
	w.kept.Use(client.ObjectKeyFromObject(cluster), func(last *lastWrite) { last.details, last.status = time.Time{}, now })
}

// StatusDue is how long a new status can wait. Changes that people and programs wait for can't
// wait; details can, and are written together.
func (w *Written) StatusDue(key client.ObjectKey, before, after *cachev1alpha1.MemcachedStatus, now time.Time) time.Duration {
	if before.ObservedGeneration != after.ObservedGeneration || before.Phase != after.Phase ||
		!equality.Semantic.DeepEqual(before.Servers, after.Servers) ||
		!equality.Semantic.DeepEqual(before.LastDrains, after.LastDrains) || leaving(before) > leaving(after) || advises(before, after) {
		return 0
	}
	for _, c := range after.Conditions {
		// The others change with the phase, or are details.
		urgent := c.Type == cachev1alpha1.ConditionReady || c.Type == cachev1alpha1.ConditionAvailable || c.Type == cachev1alpha1.ConditionDegraded
		if urgent && !meta.IsStatusConditionPresentAndEqual(before.Conditions, c.Type, c.Status) {
			return 0
		}
	}
	var due time.Time
	w.kept.Use(key, func(last *lastWrite) {
		if last.details.IsZero() {
			last.details = now
		}
		due = last.details.Add(detailInterval)
		if waitsForClients(before) && waitsForClients(after) {
			due = last.details.Add(callersInterval)
		}
		// Progress is new in every reconcile. If it also waited for detailInterval, the time
		// between two writes would double.
		if next := last.status.Add(ask.ProgressInterval); moving(after) && next.Before(due) {
			due = next
		}
	})
	return max(0, due.Sub(now))
}

// Forget forgets a Memcached that is gone.
func (w *Written) Forget(key client.ObjectKey) { w.kept.Forget(key) }

// moving tells whether a drainer is at work. A mover that only waits for the last client doesn't
// count: it may wait for hours, and reports every few seconds which clients call.
func moving(s *cachev1alpha1.MemcachedStatus) bool {
	return slices.ContainsFunc(s.Drains, func(d cachev1alpha1.DrainStatus) bool {
		return d.Phase == cachev1alpha1.DrainAdding || d.Phase == cachev1alpha1.DrainLeaving && d.Reason != cachev1alpha1.ReasonStillCalled
	})
}

// waitsForClients tells whether a leaving member waits for its last client.
func waitsForClients(s *cachev1alpha1.MemcachedStatus) bool {
	return slices.ContainsFunc(s.Drains, func(d cachev1alpha1.DrainStatus) bool { return d.Reason == cachev1alpha1.ReasonStillCalled })
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
