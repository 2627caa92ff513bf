package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/apply"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/status"
)

// announce records events for changes for the worse, and for advice, once each, after the status with them
// was written. Status keeps what was announced, so a restarted operator announces nothing twice.
func (r *MemcachedReconciler) announce(before, after *cachev1alpha1.Memcached) {
	for _, d := range claims.NewlyFailed(before.Status.Drains, after.Status.Drains, status.RowOf) {
		if d.Reason == cachev1alpha1.ReasonClaimDeleted {
			continue // the event of the condition reports it
		}
		r.Events.Eventf(after, apply.RelatedClaim(after, d.Claim), corev1.EventTypeWarning, cachev1alpha1.ReasonDrainFailed, "Drain",
			"%s", claims.BoundMessage(fmt.Sprintf("claim %s: %s: %s", d.Claim, d.Reason, d.Message)))
	}
	for _, d := range status.NewlyNotMoved(before, after) {
		lost := "how many is not known"
		if d.NotMoved != nil {
			lost = fmt.Sprintf("%d by its last mover", *d.NotMoved)
		}
		r.Events.Eventf(after, apply.Related(after, d.Claim), corev1.EventTypeNormal, "NotMoved", "Move",
			"pod %s: not all items were moved before its member left (%s); the others are lost: %s", d.Claim, d.Result, lost)
	}
	for _, a := range status.NewAdvice(before.Status.Advice, after.Status.Advice) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, a.Reason, "Advise", "%s", claims.BoundMessage(a.Message))
	}
	const certificate = cachev1alpha1.ConditionCertificateValid
	if c := meta.FindStatusCondition(after.Status.Conditions, certificate); c != nil && c.Reason == cachev1alpha1.ReasonCertificateEnds &&
		!meta.IsStatusConditionFalse(before.Status.Conditions, certificate) {
		r.Events.Eventf(after, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", claims.BoundMessage(c.Message))
	}
	announceDegraded(r.Events, before, after)
}

// announceDegraded records an event if an object has become Degraded, or is so for another reason. A drain that
// has failed has an event of its own.
func announceDegraded(events events.EventRecorder, before, after client.Object) {
	was := meta.FindStatusCondition(conditionsOf(before), cachev1alpha1.ConditionDegraded)
	is := meta.FindStatusCondition(conditionsOf(after), cachev1alpha1.ConditionDegraded)
	if is == nil || is.Status != "True" || was != nil && was.Status == is.Status && was.Reason == is.Reason || is.Reason == cachev1alpha1.ReasonDrainFailed {
		return
	}
	events.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", claims.BoundMessage(is.Message))
}
