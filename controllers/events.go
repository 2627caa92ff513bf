package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/apply"
	"example.com/memcached-operator/controllers/internal/status"
)

// announce records an event for each change for the worse, once, after the status with it was
// written.
func (r *MemcachedReconciler) announce(before, after *cachev1alpha1.Memcached) {
	for _, d := range status.NewlyFailed(before.Status.Drains, after.Status.Drains) {
		if d.Reason == cachev1alpha1.ReasonClaimDeleted {
			continue // the event of the condition reports it
		}
		r.Events.Eventf(after, apply.RelatedClaim(after, d.Claim), corev1.EventTypeWarning, cachev1alpha1.ReasonDrainFailed, "Drain",
			"%s", status.BoundMessage(fmt.Sprintf("claim %s: %s: %s", d.Claim, d.Reason, d.Message)))
	}
	const short = cachev1alpha1.ConditionShortOfMemory
	if c := meta.FindStatusCondition(after.Status.Conditions, short); c != nil && c.Status == metav1.ConditionTrue &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, short) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Scale", "%s", status.BoundMessage(c.Message))
	}
	const certificate = cachev1alpha1.ConditionCertificateValid
	if c := meta.FindStatusCondition(after.Status.Conditions, certificate); c != nil && c.Reason == cachev1alpha1.ReasonCertificateEnds &&
		!meta.IsStatusConditionFalse(before.Status.Conditions, certificate) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", status.BoundMessage(c.Message))
	}
	was := meta.FindStatusCondition(before.Status.Conditions, cachev1alpha1.ConditionDegraded)
	is := meta.FindStatusCondition(after.Status.Conditions, cachev1alpha1.ConditionDegraded)
	if is == nil || is.Status != "True" || was != nil && was.Status == is.Status && was.Reason == is.Reason ||
		is.Reason == cachev1alpha1.ReasonDrainFailed {
		return
	}
	r.Events.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", status.BoundMessage(is.Message))
}
