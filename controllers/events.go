package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
)

// event tells of a write that succeeded.
func (r *MemcachedReconciler) event(cluster *cachev1alpha1.Memcached, reason, action, note string, args ...any) {
	r.Events.Eventf(cluster, nil, corev1.EventTypeNormal, reason, action, note, args...)
}

// claimEvent tells of a write that succeeded, about one of the claims.
func (r *MemcachedReconciler) claimEvent(cluster *cachev1alpha1.Memcached, claim plan.ClaimRef, reason, action, note string, args ...any) {
	if cluster.UID == "" {
		return // nobody would find it
	}
	r.Events.Eventf(cluster, relatedClaim(cluster, claim.Name), corev1.EventTypeNormal, reason, action, note, args...)
}

// relatedClaim tells the events of one drain from those of another: the recorder
// takes two that differ in their note only for one that came twice, and keeps
// the first one's note.
func relatedClaim(cluster *cachev1alpha1.Memcached, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name}}
}

// announce tells of changes for the worse, each once: when the status that has
// them is written.
func (r *MemcachedReconciler) announce(before, after *cachev1alpha1.Memcached) {
	for _, d := range status.NewlyFailed(before.Status.Drains, after.Status.Drains) {
		if d.Reason == cachev1alpha1.ReasonClaimDeleted {
			continue // the condition's event says it
		}
		r.Events.Eventf(after, relatedClaim(after, d.Claim), corev1.EventTypeWarning, cachev1alpha1.ReasonDrainFailed, "Drain",
			"%s", status.Bound(fmt.Sprintf("claim %s: %s: %s", d.Claim, d.Reason, d.Message)))
	}
	const short = cachev1alpha1.ConditionShortOfMemory
	if c := meta.FindStatusCondition(after.Status.Conditions, short); c != nil && c.Status == metav1.ConditionTrue &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, short) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Scale", "%s", status.Bound(c.Message))
	}
	was := meta.FindStatusCondition(before.Status.Conditions, cachev1alpha1.ConditionDegraded)
	is := meta.FindStatusCondition(after.Status.Conditions, cachev1alpha1.ConditionDegraded)
	if is == nil || is.Status != "True" || was != nil && was.Status == is.Status && was.Reason == is.Reason ||
		is.Reason == cachev1alpha1.ReasonDrainFailed {
		return
	}
	r.Events.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", status.Bound(is.Message))
}
