package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"example.com/memcached-operator/controllers/internal/plan"
)

// maySetAside asks plan.MaySetAside about the live claim.
func (r *applier) maySetAside(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	c, ours := planClaim(r.cluster.Name, claim)
	if !ours {
		return refuse("claim %s is no member's", claim.Name)
	}
	live := &liveView{}
	if err := r.liveJobs(ctx, r.cluster, nil, live); err != nil {
		return err
	}
	volume, err := r.volume(ctx, c.Volume)
	if err != nil {
		return err
	}
	c.Where = whereIs(volume, claim, c.Successor)
	return refused(plan.MaySetAside(&live.Observed, &c))
}

// movableClaim reads the claim whose volume is to move, and asks plan.MayMove;
// nil where the claim is gone.
func (r *applier) movableClaim(ctx context.Context, ref plan.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := r.liveClaim(ctx, r.cluster, ref)
	if err != nil || claim == nil {
		return nil, err
	}
	c, ours := planClaim(r.cluster.Name, claim)
	if !ours {
		return nil, refuse("claim %s is no member's", claim.Name)
	}
	return claim, refused(plan.MayMove(&c))
}
