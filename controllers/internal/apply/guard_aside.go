package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

// maySetAside asks plan.MaySetAside about the live claim.
func (r *run) maySetAside(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	c, ours := observe.PlanClaim(r.cluster.Name, claim)
	if !ours {
		return observe.Refuse("claim %s is not a member's", claim.Name)
	}
	live, err := r.Reader.LiveJobs(ctx, r.cluster)
	if err != nil {
		return err
	}
	if c.Where, err = r.Reader.Where(ctx, claim, &c); err != nil {
		return err
	}
	return observe.RefusedBy(plan.MaySetAside(&live.Observed, &c))
}

// claimToSetAside reads the claim whose volume is to be set aside, and asks
// plan.MayReserve; nil if the claim is gone.
func (r *run) claimToSetAside(ctx context.Context, ref action.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := r.Reader.LiveClaim(ctx, r.cluster.Namespace, ref)
	if err != nil || claim == nil {
		return nil, err
	}
	c, ours := observe.PlanClaim(r.cluster.Name, claim)
	if !ours {
		return nil, observe.Refuse("claim %s is not a member's", claim.Name)
	}
	if c.Where, err = r.Reader.Where(ctx, claim, &c); err != nil {
		return nil, err
	}
	return claim, observe.RefusedBy(plan.MayReserve(&c))
}
