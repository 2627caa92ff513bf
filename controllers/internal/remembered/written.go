package remembered

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// Written remembers our last write of each Memcached, as the API server answered it. The next reconcile may come
// before the cache has the write. Without Written, that reconcile would start from an older object, and its writes
// would be refused.
type Written struct{ kept ByObject[lastWrite] }

type lastWrite struct {
	// object is the Memcached that was written; nil once the cache has it. at is when it was
	// written. from is the generation before all writes that the cache doesn't have: the write of a
	// missing size makes a new generation.
	object *cachev1alpha1.Memcached
	from   int64
	at     time.Time
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

// Note remembers the Memcached as the API server answered the write. from is the generation before the write.
func (w *Written) Note(cluster *cachev1alpha1.Memcached, from int64, now time.Time) {
	w.kept.Use(client.ObjectKeyFromObject(cluster), func(last *lastWrite) {
		if last.object == nil || last.object.UID != cluster.UID || from < last.from {
			last.from = from
		}
		last.object, last.at = cluster.DeepCopy(), now
	})
}

// Forget forgets a Memcached that is gone.
func (w *Written) Forget(key client.ObjectKey) { w.kept.Forget(key) }
