package remembered

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Missing remembers since when members have had no pod, or Jobs no pod at work: nothing in the cluster says so. A nil
// Missing knows of no time, so each of these has had none for long.
type Missing[K int32 | types.UID] struct{ kept ByObject[map[K]time.Time] }

// Note notes those of a cluster that have no pod now, and returns since when.
func (m *Missing[K]) Note(cluster client.ObjectKey, missing []K, now time.Time) map[K]time.Time {
	if m == nil {
		return nil
	}
	if len(missing) == 0 {
		m.kept.Forget(cluster)
		return nil
	}
	since := make(map[K]time.Time, len(missing))
	m.kept.Use(cluster, func(kept *map[K]time.Time) {
		for _, i := range missing {
			if t, known := (*kept)[i]; known {
				since[i] = t
			} else {
				since[i] = now
			}
		}
		*kept = since // it is never changed
	})
	return since
}

// Since is what the last Note returned, for a live read, which may find more without a pod: those since now.
func (m *Missing[K]) Since(cluster client.ObjectKey, missing K, now time.Time) (since time.Time) {
	if m == nil {
		return since
	}
	m.kept.Use(cluster, func(kept *map[K]time.Time) {
		if t, known := (*kept)[missing]; known {
			now = t
		}
	})
	return now
}

// Forget forgets a cluster that is gone.
func (m *Missing[K]) Forget(cluster client.ObjectKey) { m.kept.Forget(cluster) }
