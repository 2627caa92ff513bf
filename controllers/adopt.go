package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// liveClaims are the claims of the cluster's members, present and past, by their names:
// those of the namespace that the StatefulSet would use. One that the cache can't see,
// because it came back from a snapshot, was left by another chart or lost its label, is
// adopted first. others are those that somebody else controls.
func (r *MemcachedReconciler) liveClaims(ctx context.Context, o *observed) (claims []plan.Claim, others []corev1.PersistentVolumeClaim, err error) {
	var list corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &list, client.InNamespace(o.cluster.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list claims: %w", err)
	}
	adopted := 0
	for i := range list.Items {
		claim := &list.Items[i]
		if of, ok := build.ClaimCluster(claim.Name); !ok || of != o.cluster.Name {
			continue
		}
		if !ownClaim(o.cluster.Name, claim) {
			others = append(others, *claim)
			continue
		}
		if _, labelled := claim.Labels[cachev1alpha1.LabelCluster]; !labelled {
			if err := r.adoptClaim(ctx, o, claim); err != nil {
				return nil, nil, err
			}
			adopted++
		}
		if c, ok := planClaim(o.cluster.Name, claim); ok {
			claims = append(claims, c)
		}
	}
	if adopted > 0 {
		return nil, nil, refuse("claims were adopted: %d; the cache does not have them yet", adopted)
	}
	return claims, others, nil
}

// adoptClaim labels a claim of a member's name, and holds it as those that are born
// with the finalizer: the member's items will be on its volume, or are.
func (r *MemcachedReconciler) adoptClaim(ctx context.Context, o *observed, claim *corev1.PersistentVolumeClaim) error {
	before := claim.DeepCopy()
	metav1.SetMetaDataLabel(&claim.ObjectMeta, cachev1alpha1.LabelCluster, o.cluster.Name)
	if holds := o.cluster.DeletionTimestamp == nil && planPolicy(o.cluster) == plan.Drain; holds && claim.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(claim, cachev1alpha1.ClaimFinalizer)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, claim, patch); err != nil {
		return fmt.Errorf("adopt claim %s: %w", claim.Name, err)
	}
	r.claimEvent(o, plan.ClaimRef{Name: claim.Name, UID: claim.UID}, "ClaimAdopted", "Adopt",
		"claim %s was there before its member, without the label %s: it is adopted, and will be drained as any other", claim.Name, cachev1alpha1.LabelCluster)
	return nil
}

// memberOrdinal is that of the member whose claim has this name.
func memberOrdinal(cluster string, claim *corev1.PersistentVolumeClaim) int32 {
	ordinal, ok := build.ClaimOrdinal(cluster, claim.Name)
	if !ok {
		return cachev1alpha1.MaxSize // an aside claim: no member uses it
	}
	return ordinal
}

// findClaims looks live for the claims of members that run and whose claims the cache
// does not have. A paused cluster stays as it is.
func (r *MemcachedReconciler) findClaims(ctx context.Context, o *observed) error {
	if paused(o.cluster) {
		return nil
	}
	for i := range o.pods {
		ordinal, ok := build.PodOrdinal(o.cluster.Name, o.pods[i].Name)
		if !ok || o.pods[i].Status.Phase != corev1.PodRunning {
			continue
		}
		name := build.ClaimName(o.cluster.Name, ordinal)
		if !slices.ContainsFunc(o.claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name }) {
			_, _, err := r.liveClaims(ctx, o)
			return err
		}
	}
	return nil
}
