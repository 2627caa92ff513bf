package read

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// UnlabelledClaims are the claims without the label of a Memcached, which the manager's cache does not have: their
// names, and of those with our finalizer whether they were deleted. Nil has none.
type UnlabelledClaims struct{ cache.Cache }

const (
	// byOwner finds claims by the name of the owner that their own name tells.
	byOwner = "owner"
	// byFinalizer finds claims with our finalizer.
	byFinalizer = "finalizer"
)

// WatchUnlabelled watches the claims without the label in these namespaces, or in all if none are given.
// owner returns the name of the Memcached that a claim's name tells.
func WatchUnlabelled(mgr ctrl.Manager, owner func(claim string) (string, bool), namespaces ...string) (*UnlabelledClaims, error) {
	without, err := labels.NewRequirement(cachev1alpha1.LabelCluster, selection.DoesNotExist, nil)
	if err != nil {
		return nil, err
	}
	c, err := NewCache(mgr, map[client.Object]cache.ByObject{
		ClaimMetadata(): {Label: labels.NewSelector().Add(*without), Transform: onlyNames},
	}, namespaces...)
	if err != nil {
		return nil, fmt.Errorf("watch claims without the label: %w", err)
	}
	for index, of := range map[string]client.IndexerFunc{
		byOwner: func(o client.Object) []string {
			if of, is := owner(o.GetName()); is {
				return []string{of}
			}
			return nil
		},
		byFinalizer: func(o client.Object) []string { return o.GetFinalizers() },
	} {
		if err := c.IndexField(context.Background(), ClaimMetadata(), index, of); err != nil {
			return nil, fmt.Errorf("index claims without the label: %w", err)
		}
	}
	return &UnlabelledClaims{c}, nil
}

// ClaimMetadata is an object into which only the metadata of a claim is read.
func ClaimMetadata() *metav1.PartialObjectMetadata {
	claim := &metav1.PartialObjectMetadata{}
	claim.SetGroupVersionKind(kindClaims)
	return claim
}

// onlyNames drops all fields but those that name the claim, and finalizers but ours.
func onlyNames(object any) (any, error) {
	if o, is := object.(*metav1.PartialObjectMetadata); is {
		kept := metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
		if controllerutil.ContainsFinalizer(o, cachev1alpha1.ClaimFinalizer) {
			kept.Finalizers, kept.DeletionTimestamp = []string{cachev1alpha1.ClaimFinalizer}, o.DeletionTimestamp
		}
		o.ObjectMeta = kept
	}
	return object, nil
}

// names are the names of the claims in the namespace for which the index has the value.
func (u *UnlabelledClaims) names(ctx context.Context, namespace, index, value string) (names []string, err error) {
	if u == nil || u.Cache == nil {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kindClaims)
	err = u.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: value})
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// Kept tells whether the claim was deleted, and our finalizer keeps it.
func Kept(claim client.Object) bool {
	return claim.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(claim, cachev1alpha1.ClaimFinalizer)
}

// Kept tells whether a claim of this name was deleted, and our finalizer keeps it.
func (u *UnlabelledClaims) Kept(ctx context.Context, key client.ObjectKey) (bool, error) {
	if u == nil || u.Cache == nil {
		return false, nil
	}
	claim := ClaimMetadata()
	err := u.Get(ctx, key, claim)
	return err == nil && Kept(claim), client.IgnoreNotFound(err)
}

// Version tells one state of a claim from another; empty if there is no such claim here, or none is watched.
func (u *UnlabelledClaims) Version(ctx context.Context, key client.ObjectKey) (string, error) {
	if u == nil || u.Cache == nil {
		return "", nil
	}
	claim := ClaimMetadata()
	if err := u.Get(ctx, key, claim); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return VersionOf(claim), nil
}

// VersionOf is the version of a claim that was read.
func VersionOf(claim client.Object) string {
	return string(claim.GetUID()) + " " + claim.GetResourceVersion()
}

// Protected are the names of the claims in the namespace that have our finalizer.
func (u *UnlabelledClaims) Protected(ctx context.Context, namespace string) ([]string, error) {
	return u.names(ctx, namespace, byFinalizer, cachev1alpha1.ClaimFinalizer)
}

// Protected are the names of claims that may be the owner's, have our finalizer, and lack a Memcached's
// label. A Memcached's claim without the label is in no other cache.
func (r *Reader) Protected(ctx context.Context) (names []string, err error) {
	all, err := r.Unlabelled.Protected(ctx, r.Object.GetNamespace())
	for _, name := range all {
		if r.Named(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// Source reports claims that have our finalizer and lack a Memcached's label, so that they are found although
// nothing else has changed. owners are the owners that a claim may belong to.
func (u *UnlabelledClaims) Source(owners func(context.Context, client.ObjectKey) []reconcile.Request) source.Source {
	return source.Kind(u.Cache, ClaimMetadata(), handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, claim *metav1.PartialObjectMetadata) []reconcile.Request {
		return owners(ctx, client.ObjectKeyFromObject(claim))
	}), predicate.NewTypedPredicateFuncs(func(claim *metav1.PartialObjectMetadata) bool { return len(claim.Finalizers) > 0 }))
}
