package remembered

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRefusals is how many different refusals of a cluster are remembered.
const maxRefusals = 8

// Refusals remembers since when every reconcile of a Memcached has refused a step.
type Refusals struct{ kept ByObject[refusal] }

type refusal struct {
	// first is when the first step was refused. since has when each refusal began, by its message,
	// because two refusals may alternate.
	first time.Time
	since map[string]time.Time
}

// Note remembers that the step was refused, and returns since when.
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
			since = kept.first // the message differs each time
			return
		}
		kept.since[why] = now
	})
	return since
}

// Lasted remembers the refusal, and returns how long it has lasted.
func (r *Refusals) Lasted(key client.ObjectKey, why string, now time.Time) time.Duration {
	return now.Sub(r.Note(key, why, now))
}

// Forget forgets a Memcached that is gone, or whose steps are no longer refused.
func (r *Refusals) Forget(key client.ObjectKey) { r.kept.Forget(key) }
