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

// withheld is err, or else the error of the first step that is not tried now, because the API server denied
// it a moment ago. So status shows the denial until the step is tried again, and succeeds.
func withheld(err error, work *claims.Work) error {
	if err != nil || len(work.Withheld) == 0 {
		return err
	}
	return errors.New(work.Withheld[0].Why)
}

// foreignInterval is the shortest time between two reads of another owner's object that blocks a
// step.
const foreignInterval = 5 * time.Second

// nameTaken tells whether an object of another owner has a name that is needed.
func nameTaken(err error) bool {
	taken := (*identity.NameTakenError)(nil)
	return errors.As(err, &taken)
}

// noteRefusal notes why, and since when, the step has been refused.
func (r *MemcachedReconciler) noteRefusal(o *outcome, why error) {
	since := r.refusedSteps.Note(client.ObjectKeyFromObject(o.Cluster), why.Error(), r.Clock.Now())
	o.Refused = &status.Refusal{Since: since, Why: claims.Printable(why.Error(), claims.MaxMessage)}
}
