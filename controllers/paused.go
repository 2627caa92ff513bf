package controllers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
)

// paused tells whether a person wants nothing of the cluster changed. A deletion is
// a later word of theirs, and goes on.
func paused(c *cachev1alpha1.Memcached) bool { return c.Spec.Paused && c.DeletionTimestamp == nil }

// pausedPlan is what the plan for a paused cluster comes to: no step of it is taken, and
// what only a step would bring about is not said to be so.
func (o *observed) pausedPlan(p plan.Plan) plan.Plan {
	const why = "spec.paused is true"
	var drains []plan.DrainState
	for _, d := range p.Drains {
		if !o.departed(d.Claim.UID) {
			continue
		}
		if d.Phase == plan.Releasing || d.Phase == plan.Draining && d.Job == nil {
			d.Phase, d.Reason, d.Message = plan.Waiting, cachev1alpha1.ReasonPaused, why
		}
		drains = append(drains, d)
	}
	p.Actions, p.Drains = nil, drains
	for i := range p.Placements {
		if s := &p.Placements[i]; s.Phase == plan.PlacementRuns && s.Job == nil {
			s.Phase, s.Reason, s.Message = plan.PlacementWaits, cachev1alpha1.ReasonPaused, why
		}
	}
	return p
}

// departed tells whether the claim is marked as one that its member left.
func (o *observed) departed(claim types.UID) bool {
	return slices.ContainsFunc(o.claims, func(c corev1.PersistentVolumeClaim) bool {
		_, marked := c.Annotations[cachev1alpha1.AnnotationLeaving]
		return marked && c.UID == claim
	})
}

// monitoredBefore is what status said of the ServiceMonitor before nobody looked any more.
func monitoredBefore(cluster *cachev1alpha1.Memcached) (is status.Monitoring) {
	c := meta.FindStatusCondition(cluster.Status.Conditions, cachev1alpha1.ConditionMonitored)
	switch {
	case c == nil:
	case c.Reason == cachev1alpha1.ReasonServiceMonitorApplied:
		is = status.Monitored
	case c.Reason == cachev1alpha1.ReasonServiceMonitorUnknown:
		is = status.MonitoringUnknown
	}
	return is
}
