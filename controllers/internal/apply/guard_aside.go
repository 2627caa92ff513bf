package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/observe"
)

// maySetAside asks claims.MaySetAside about the live claim.
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
	return observe.RefusedBy(claims.MaySetAside(&live.Facts, &c))
}

// claimToSetAside reads the claim whose volume is to be set aside, and asks
// claim.MayReserve; nil if the claim is gone.
func (r *run) claimToSetAside(ctx context.Context, ref action.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := r.Reader.LiveClaim(ctx, r.cluster.Namespace, ref)
	if err != nil || pvc == nil {
		return nil, err
	}
	c, ours := observe.PlanClaim(r.cluster.Name, pvc)
	if !ours {
		return nil, observe.Refuse("claim %s is not a member's", pvc.Name)
	}
	if c.Where, err = r.Reader.Where(ctx, pvc, &c); err != nil {
		return nil, err
	}
	return pvc, observe.RefusedBy(claims.MayReserve(&c))
}
