package observe

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

// Paused tells whether a person has paused the cluster. A deletion continues even then.
func Paused(c *cachev1alpha1.Memcached) bool { return c.Spec.Paused && c.DeletionTimestamp == nil }

// PausedPlan is the plan of a paused cluster: without its steps, and without the results that only
// these steps would have.
func (o *State) PausedPlan(p plan.Plan) plan.Plan {
	const why = "spec.paused is true"
	var drains []claims.DrainState
	for _, d := range p.Drains {
		if !o.marked(d.Claim.UID) {
			continue
		}
		if d.Phase == claims.Releasing || d.Phase == claims.Draining && d.Job == nil {
			d.Phase, d.Reason, d.Message = claims.Waiting, cachev1alpha1.ReasonPaused, why
		}
		drains = append(drains, d)
	}
	p.Actions, p.Drains = nil, drains
	for i := range p.Moves {
		if s := &p.Moves[i]; s.Phase == plan.MoveRuns && s.Job == nil {
			s.Phase, s.Reason, s.Message = plan.MoveWaits, cachev1alpha1.ReasonPaused, why
		}
	}
	if s := &p.Warming; s.Phase == plan.WarmRuns && s.Job == nil {
		s.Phase, s.Reason, s.Message = plan.WarmWaits, cachev1alpha1.ReasonPaused, why
	}
	return p
}

// marked tells whether the claim has the leaving mark.
func (o *State) marked(claim types.UID) bool {
	return slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool {
		_, leaves := c.Annotations[cachev1alpha1.AnnotationLeaving]
		return leaves && c.UID == claim
	})
}
