package controllers

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/installation"
	"example.com/memcached-operator/controllers/internal/observe"
)

// manages tells whether this installation of the operator manages the Memcached, and after what
// time to look again; 0 if an event will come. It writes the question or answer for another
// installation.
func (r *MemcachedReconciler) manages(ctx context.Context, cluster *cachev1alpha1.Memcached) (bool, time.Duration, error) {
	if r.Installation == "" || cluster.UID == "" {
		return true, 0, nil
	}
	seen := r.seenInstallations(cluster)
	step, wait := installation.Next(r.Installation, seen)
	if step == installation.Claim && (observe.Paused(cluster) || cluster.DeletionTimestamp != nil || managesWithFinalizer(cluster)) {
		return true, 0, nil
	}
	before := cluster.DeepCopy()
	if !installation.Write(r.Installation, step, cluster) {
		return step.Manages(), wait, nil
	}
	ctx = write.Because(ctx, step.Because(seen))
	err := r.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cachev1alpha1.ManagedBy))
	if err != nil {
		before.DeepCopyInto(cluster)
		return false, retryAfter(0), client.IgnoreNotFound(err)
	}
	step, wait = installation.Next(r.Installation, r.seenInstallations(cluster))
	return step.Manages(), wait, nil
}

// seenInstallations is what the Memcached says about its installations of the operator, and for how
// long.
func (r *MemcachedReconciler) seenInstallations(cluster *cachev1alpha1.Memcached) installation.Seen {
	return installation.See(cluster, r.installations.UnchangedFor(cluster, r.Clock.Now()))
}

// managesWithFinalizer tells whether the cluster is about to get its finalizer. That write also has
// the name of the installation, and comes before all others.
func managesWithFinalizer(cluster *cachev1alpha1.Memcached) bool {
	return cluster.Spec.Storage != nil && !controllerutil.ContainsFinalizer(cluster, cachev1alpha1.ClusterFinalizer)
}

// leaveAlone ends the reconcile of a cluster that another installation manages or may manage.
func (r *MemcachedReconciler) leaveAlone(key client.ObjectKey, look time.Duration, err error) (ctrl.Result, error) {
	r.progress.Forget(key)
	r.room.Forget(key)
	r.rings.Forget(key)
	r.certificates.Forget(key)
	r.turns().StandAside(key)
	r.routerTurns().StandAside(key)
	if err != nil && !passes(err) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: look}, nil
}

// otherInstallation is another installation that would manage the Memcached if this one didn't;
// empty if none is known.
func (r *MemcachedReconciler) otherInstallation(cluster *cachev1alpha1.Memcached) string {
	seen := installation.See(cluster, 0)
	if seen.Question == nil || seen.Question.By == r.Installation || seen.Operator != r.Installation {
		return ""
	}
	return seen.Question.By
}
