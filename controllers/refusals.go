package controllers

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/status"
)

// again is how long to wait before a step is tried again that has been refused for
// that long: the time between two tries doubles.
func again(held time.Duration) time.Duration { return min(max(held, retryFirst), retryLast) }

// passes tells whether the step was refused, or was one of two at the same time:
// what it rested on was not true any more, and the next reconcile sees more.
func passes(err error) bool { return errors.Is(err, observe.ErrRefused) || apierrors.IsConflict(err) }

// foreignInterval is how often an object that is in the way is looked for at first. When
// it has been there for long, that is every retryLast.
const foreignInterval = 5 * time.Second

// waitForName tells when to look again for an object that is in the way. It is in the
// condition, and only what is ours is watched.
func (r *MemcachedReconciler) waitForName(o *observed, taken *status.NameTakenError) {
	held := r.steps.Lasted(client.ObjectKeyFromObject(o.Cluster), taken.Error(), r.Clock.Now())
	o.Waits.AtMost(max(again(held), foreignInterval))
}

// noteRefusal tells when to look again, and since when the step is refused: status
// shows one that holds.
func (r *MemcachedReconciler) noteRefusal(o *observed, why error) {
	now := r.Clock.Now()
	since := r.steps.Note(client.ObjectKeyFromObject(o.Cluster), why.Error(), now)
	o.Waits.AtMost(again(now.Sub(since)))
	o.Refused = &status.Refusal{Since: since, Why: status.Printable(why.Error(), status.MaxMessage)}
}
