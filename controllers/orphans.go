package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// orphans says what keeps a deleted claim that has our finalizer and belongs to no Memcached and no
// StatefulSetDrain: the claim template of a StatefulSet has the finalizer, or its owner is gone without
// having released it. Nothing drains such a claim. The claim is released when its namespace is deleted.
type orphans struct {
	client.Client
	Live client.Reader
	// Unlabelled has all claims but Memcacheds', whose claims the Client's cache has.
	Unlabelled *read.UnlabelledClaims
	Events     events.EventRecorder
	Clock      clock.PassiveClock

	said remembered.ByObject[time.Time]
}

const (
	// orphanInterval is how often the namespace of an orphan is looked at: no event tells that it is being
	// deleted.
	orphanInterval = 5 * time.Minute
	// orphanSayAgain is how often the event is repeated. The API server keeps events for an hour.
	orphanSayAgain = time.Hour
)

// Reconcile looks at one claim with our finalizer.
func (o *orphans) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	orphan, err := o.find(ctx, req.NamespacedName)
	if err != nil || orphan == nil {
		o.said.Forget(req.NamespacedName)
		return ctrl.Result{}, err
	}
	if ends, err := read.NamespaceTerminates(ctx, o.Live, orphan.Namespace); err != nil || ends {
		if err == nil {
			err = o.release(ctx, orphan)
		}
		return ctrl.Result{}, err
	}
	now, due := o.Clock.Now(), false
	o.said.Use(req.NamespacedName, func(at *time.Time) {
		if due = !now.Before(at.Add(orphanSayAgain)); due {
			*at = now
		}
	})
	if due {
		o.Events.Eventf(orphan, nil, corev1.EventTypeWarning, cachev1alpha1.ReasonNothingDrains, "Reconcile",
			"the claim was deleted, and the finalizer %s keeps it, but it belongs to no Memcached and to no StatefulSetDrain, so nothing drains it: "+
				"create its StatefulSetDrain or Memcached, or take the finalizer off to give the data up", cachev1alpha1.ClaimFinalizer)
	}
	return ctrl.Result{RequeueAfter: orphanInterval}, nil
}

// find returns the claim, read live, if it is an orphan that was deleted, and nil if it isn't. Its owner may
// have released it, and be gone from a cache that is ahead of the claim's.
func (o *orphans) find(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	if belongs, err := o.belongs(ctx, key); err != nil || belongs {
		return nil, err
	}
	kept, err := o.Unlabelled.Kept(ctx, key)
	if err != nil {
		return nil, err
	}
	if !kept {
		cached := &corev1.PersistentVolumeClaim{}
		if err := o.Get(ctx, key, cached); err != nil || !read.Kept(cached) {
			return nil, client.IgnoreNotFound(err)
		}
	}
	claim := read.ClaimMetadata()
	if err := o.Live.Get(ctx, key, claim); err != nil || !read.Kept(claim) {
		return nil, client.IgnoreNotFound(err)
	}
	return claim, nil
}

// belongs tells whether a Memcached or a StatefulSetDrain exists that the claim may belong to by its name.
func (o *orphans) belongs(ctx context.Context, claim client.ObjectKey) (bool, error) {
	var drains cachev1alpha1.StatefulSetDrainList
	if err := o.List(ctx, &drains, client.InNamespace(claim.Namespace)); err != nil {
		return false, err
	}
	for i := range drains.Items {
		if _, is := stsdrain.ParseClaimName(drains.Items[i].Spec.StatefulSetName, claim.Name); is {
			return true, nil
		}
	}
	cluster, is := build.ClaimCluster(claim.Name)
	if !is {
		return false, nil
	}
	err := o.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: cluster}, &cachev1alpha1.Memcached{})
	return err == nil, client.IgnoreNotFound(err)
}

// release removes the finalizer, because the namespace is being deleted.
func (o *orphans) release(ctx context.Context, claim *metav1.PartialObjectMetadata) error {
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, cachev1alpha1.ClaimFinalizer)
	ctx = write.Because(ctx, "the namespace is being deleted")
	err := o.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return nil // the change comes as an event
	}
	return client.IgnoreNotFound(err)
}

// setUp adds the controller and its watches to the manager.
func (o *orphans) setUp(mgr ctrl.Manager, options controller.Options) error {
	itself := func(_ context.Context, claim client.ObjectKey) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: claim}}
	}
	kept := predicate.NewPredicateFuncs(read.Kept)
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("orphans").
		WatchesRawSource(o.Unlabelled.Source(itself)).
		Watches(&corev1.PersistentVolumeClaim{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(kept)).
		Watches(&cachev1alpha1.StatefulSetDrain{}, handler.EnqueueRequestsFromMapFunc(o.inNamespace), builder.WithPredicates(gone)).
		Watches(&cachev1alpha1.Memcached{}, handler.EnqueueRequestsFromMapFunc(o.inNamespace), builder.WithPredicates(gone)).
		WithOptions(controller.Options{SkipNameValidation: options.SkipNameValidation}).
		Complete(o)
}

// inNamespace are the claims with our finalizer in the namespace of an owner that is gone.
func (o *orphans) inNamespace(ctx context.Context, gone client.Object) (requests []reconcile.Request) {
	named, err := o.Unlabelled.Protected(ctx, gone.GetNamespace())
	var list corev1.PersistentVolumeClaimList
	if err != nil || o.List(ctx, &list, client.InNamespace(gone.GetNamespace())) != nil {
		return nil
	}
	for i := range list.Items {
		if read.Kept(&list.Items[i]) {
			named = append(named, list.Items[i].Name)
		}
	}
	slices.Sort(named)
	for _, name := range slices.Compact(named) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: gone.GetNamespace(), Name: name}})
	}
	return requests
}
