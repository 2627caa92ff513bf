package memory

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRefusals is how many refusals of a cluster are kept apart.
const maxRefusals = 8

// Refusals remembers since when steps of each Memcached have been refused, without a
// reconcile in between that refused none.
type Refusals struct{ kept Of[refusal] }

type refusal struct {
	// first is when the first one was refused, since when each was, by its message: two
	// refusals may alternate.
	first time.Time
	since map[string]time.Time
}

// Note that the step was refused, and return since when.
func (r *Refusals) Note(key client.ObjectKey, why string, now time.Time) (since time.Time) {
	r.kept.Use(key, func(kept *refusal) {
		if kept.first.IsZero() {
			*kept = refusal{first: now, since: map[string]time.Time{}}
		}
		var known bool
		if since, known = kept.since[why]; known {
			return
		}
		if since = now; len(kept.since) >= maxRefusals {
			since = kept.first // its message differs each time
			return
		}
		kept.since[why] = now
	})
	return since
}

// Lasted notes the refusal, and returns for how long it has lasted.
func (r *Refusals) Lasted(key client.ObjectKey, why string, now time.Time) time.Duration {
	return now.Sub(r.Note(key, why, now))
}

// Forget a Memcached whose steps are not refused any more, or that is gone.
func (r *Refusals) Forget(key client.ObjectKey) { r.kept.Forget(key) }
