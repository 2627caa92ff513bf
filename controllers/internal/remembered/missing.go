package remembered

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Missing remembers since when members have had no pod: nothing in the cluster says so. A nil Missing knows of no time,
// so each such member has been away for long.
type Missing struct{ kept ByObject[map[int32]time.Time] }

// Note notes the members of a cluster that have no pod now, and returns since when.
func (m *Missing) Note(cluster client.ObjectKey, members []int32, now time.Time) map[int32]time.Time {
	if m == nil {
		return nil
	}
	if len(members) == 0 {
		m.kept.Forget(cluster)
		return nil
	}
	since := make(map[int32]time.Time, len(members))
	m.kept.Use(cluster, func(kept *map[int32]time.Time) {
		for _, i := range members {
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

// Since is what the last Note returned, for a live read, which may find more members without a pod: those since now.
func (m *Missing) Since(cluster client.ObjectKey, member int32, now time.Time) (since time.Time) {
	if m == nil {
		return since
	}
	m.kept.Use(cluster, func(kept *map[int32]time.Time) {
		if t, known := (*kept)[member]; known {
			now = t
		}
	})
	return now
}

// Forget forgets a cluster that is gone.
func (m *Missing) Forget(cluster client.ObjectKey) { m.kept.Forget(cluster) }
