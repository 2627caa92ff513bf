package controllers

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/status"
)

// maxRefusals is how many refusals of a cluster are told apart.
const maxRefusals = 8

// refusals remembers since when steps of each Memcached have been refused without a
// reconcile in between that was not.
type refusals struct{ memory[refusal] }

type refusal struct {
	// first is when the first one was, since has when each was, by what it says: two
	// that take turns are both known.
	first time.Time
	since map[string]time.Time
}

// note that the step was refused. It returns since when this has been so.
func (r *refusals) note(key client.ObjectKey, why string, now time.Time) (since time.Time) {
	r.use(key, func(kept *refusal) {
		if kept.first.IsZero() {
			*kept = refusal{first: now, since: map[string]time.Time{}}
		}
		var known bool
		if since, known = kept.since[why]; known {
			return
		}
		if since = now; len(kept.since) >= maxRefusals {
			since = kept.first // it says something else each time
			return
		}
		kept.since[why] = now
	})
	return since
}

// held notes the refusal, and returns for how long it has held.
func (r *refusals) held(key client.ObjectKey, why string, now time.Time) time.Duration {
	return now.Sub(r.note(key, why, now))
}

// again is how long to wait before a step is tried again that has been refused for
// that long: the time between two tries doubles.
func again(held time.Duration) time.Duration { return min(max(held, retryFirst), retryLast) }

// passes tells whether the step was refused, or was one of two at the same time:
// what it rested on was not true any more, and the next reconcile sees more.
func passes(err error) bool { return errors.Is(err, errRefused) || apierrors.IsConflict(err) }

// foreignInterval is how often an object that is in the way is looked for at first. When
// it has been there for long, that is every retryLast.
const foreignInterval = 5 * time.Second

// waitForName tells when to look again for an object that is in the way. It is in the
// condition, and only what is ours is watched.
func (r *MemcachedReconciler) waitForName(o *observed, taken *status.NameTakenError) {
	held := r.steps.held(client.ObjectKeyFromObject(o.cluster), taken.Error(), r.Clock.Now())
	o.waits.atMost(max(again(held), foreignInterval))
}

// noteRefusal tells when to look again, and since when the step is refused: status
// shows one that holds.
func (r *MemcachedReconciler) noteRefusal(o *observed, why error) {
	now := r.Clock.Now()
	since := r.steps.note(client.ObjectKeyFromObject(o.cluster), why.Error(), now)
	o.waits.atMost(again(now.Sub(since)))
	o.refused = &status.Refusal{Since: since, Why: status.Printable(why.Error(), status.MaxMessage)}
}
