package controllers

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/status"
)

// retryAfter is how long to wait before trying a refused step again: as long as it has been
// refused, within bounds.
func retryAfter(refusedFor time.Duration) time.Duration {
	return min(max(refusedFor, retryFirst), retryLast)
}

// passes tells whether the error passes by itself: the step was refused, conflicted with another
// write, or went to a namespace that is being deleted. The next reconcile sees more.
func passes(err error) bool {
	return errors.Is(err, read.ErrRefused) || apierrors.IsConflict(err) || namespaceEnds(err)
}

// withheld is err, or else the error of the first step that is not tried now: the API server denied it a moment ago. So
// status says the same until it is tried again, and succeeds.
func withheld(err error, work *claims.Work) error {
	if err != nil || len(work.Withheld) == 0 {
		return err
	}
	return errors.New(work.Withheld[0].Why)
}

// foreignInterval is the shortest time between two reads of another owner's object that blocks a
// step.
const foreignInterval = 5 * time.Second

// waitForName sets when to look again at the object that has a name that the cluster needs, because
// that object is not watched.
func (r *MemcachedReconciler) waitForName(o *outcome, taken *identity.NameTakenError) {
	refusedFor := r.refusedSteps.Lasted(client.ObjectKeyFromObject(o.Cluster), taken.Error(), r.Clock.Now())
	o.Waits.AtMost(max(retryAfter(refusedFor), foreignInterval))
}

// noteRefusal sets when to reconcile again, and notes since when the step has been refused.
func (r *MemcachedReconciler) noteRefusal(o *outcome, why error) {
	now := r.Clock.Now()
	since := r.refusedSteps.Note(client.ObjectKeyFromObject(o.Cluster), why.Error(), now)
	o.Waits.AtMost(retryAfter(now.Sub(since)))
	o.Refused = &status.Refusal{Since: since, Why: claims.Printable(why.Error(), claims.MaxMessage)}
}
