package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// ending ends the reconciles of one kind of objects: it writes the status, and decides when to reconcile again.
type ending struct {
	client.Client
	Events   events.EventRecorder
	now      time.Time
	statuses *remembered.Statuses
	refused  *remembered.Refusals
	wakes    *wakes
}

// write writes the status of an object, if it differs from the one before and can't wait. wait is how long
// the write can wait.
func (e *ending) write(ctx context.Context, before, after client.Object, change remembered.Change) (written bool, wait time.Duration, err error) {
	key := client.ObjectKeyFromObject(after)
	if equality.Semantic.DeepEqual(before, after) {
		e.statuses.Note(key, e.now)
		return false, 0, nil
	}
	if wait := e.statuses.Due(key, change, e.now); wait > 0 {
		restoreStatus(after, before)
		return false, wait, nil
	}
	if err := e.patch(ctx, before, after); err != nil {
		return false, 0, client.IgnoreNotFound(err)
	}
	e.statuses.Note(key, e.now)
	return true, 0, nil
}

// patch writes the status of an object. If the write fails, patch restores the old status, because
// otherwise the next reconcile would find no difference, and write nothing.
func (e *ending) patch(ctx context.Context, before, after client.Object) error {
	// The optimistic lock is needed because lastDrains is a list: a shorter one, from a stale
	// cache, would replace a longer one.
	err := e.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		return nil
	}
	restoreStatus(after, before)
	if read.Denied(err) { // then the status can't say so itself
		e.Events.Eventf(after, nil, corev1.EventTypeWarning, cachev1alpha1.ReasonReconcileError, "Reconcile", "%s",
			claims.BoundMessage("the status can't be written: "+err.Error()))
	}
	return err
}

// restoreStatus gives the object the status that it had before.
func restoreStatus(object, before client.Object) {
	switch o := object.(type) {
	case *cachev1alpha1.Memcached:
		o.Status = before.(*cachev1alpha1.Memcached).Status
	case *cachev1alpha1.StatefulSetDrain:
		o.Status = before.(*cachev1alpha1.StatefulSetDrain).Status
	}
}

// unobserved ends a reconcile that could not read everything that belongs to the object. unobserved
// writes only the status, which keeps its last values; show adds why. A reason that may pass by itself
// is shown after a minute.
func (e *ending) unobserved(ctx context.Context, object client.Object, why error, show func()) (ctrl.Result, error) {
	before := object.DeepCopyObject().(client.Object)
	if nameTaken(why) || read.Denied(why) || e.refusedFor(object, why) >= claims.StuckAfter {
		show()
	}
	failed := error(nil)
	if object.GetUID() != "" && !equality.Semantic.DeepEqual(before, object) {
		if err := e.patch(ctx, before, object); !passes(err) {
			failed = client.IgnoreNotFound(err)
		}
	}
	if wait := e.retryIn(object, why); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, errors.Join(why, failed)
}

// result ends a reconcile: the next one comes on an event if there will be one, otherwise after the shortest
// wait. A failure is retried with growing pauses, but no later than the shortest wait.
func (e *ending) result(object client.Object, waits *read.Requeue, applyErr, statusErr error) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(object)
	if applyErr == nil && statusErr == nil {
		e.refused.Forget(key)
	}
	failed := error(nil)
	for _, err := range []error{applyErr, statusErr} {
		wait := e.retryIn(object, err)
		if waits.AtMost(wait); wait == 0 {
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil {
		return ctrl.Result{RequeueAfter: waits.Shortest}, nil
	}
	if waits.Shortest > 0 {
		e.wakes.after(key, waits.Shortest)
	}
	return ctrl.Result{}, failed
}

// retryIn is after how long to reconcile once more on an error that is not a failure: one that passes, or a name that is
// taken by an object of another owner, which is not watched; otherwise 0.
func (e *ending) retryIn(object client.Object, err error) time.Duration {
	switch {
	case nameTaken(err):
		return max(retryAfter(e.refusedFor(object, err)), foreignInterval)
	case passes(err):
		return retryAfter(e.refusedFor(object, err))
	}
	return 0
}

// refusedFor remembers that the step was refused, and returns for how long it has been.
func (e *ending) refusedFor(object client.Object, why error) time.Duration {
	return e.refused.Lasted(client.ObjectKeyFromObject(object), why.Error(), e.now)
}
