package controllers

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/status"
)

// again is how long to wait before a step is tried again that has been refused for that
// long: as long again, within bounds.
func again(refusedFor time.Duration) time.Duration {
	return min(max(refusedFor, retryFirst), retryLast)
}

// passes tells whether the error passes by itself: the step was refused, conflicted with another
// write, or went to a namespace that is being deleted. The next reconcile sees more.
func passes(err error) bool {
	return errors.Is(err, observe.ErrRefused) || apierrors.IsConflict(err) || namespaceEnds(err)
}

// foreignInterval is the shortest time between two looks at an object that is in the way.
const foreignInterval = 5 * time.Second

// waitForName says when to look again for an object that is in the way, which is not
// watched.
func (r *MemcachedReconciler) waitForName(o *observed, taken *identity.NameTakenError) {
	refusedFor := r.refusedSteps.Lasted(client.ObjectKeyFromObject(o.Cluster), taken.Error(), r.Clock.Now())
	o.Waits.AtMost(max(again(refusedFor), foreignInterval))
}

// noteRefusal says when to look again, and since when the step has been refused.
func (r *MemcachedReconciler) noteRefusal(o *observed, why error) {
	now := r.Clock.Now()
	since := r.refusedSteps.Note(client.ObjectKeyFromObject(o.Cluster), why.Error(), now)
	o.Waits.AtMost(again(now.Sub(since)))
	o.Refused = &status.Refusal{Since: since, Why: status.Printable(why.Error(), status.MaxMessage)}
}
