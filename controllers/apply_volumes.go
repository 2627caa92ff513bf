package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"example.com/memcached-operator/controllers/internal/plan"
)

// growthInterval is how often a volume that may not grow is tried again: its
// storage class, or a quota, may let it by now, and no watch of ours tells.
const growthInterval = 5 * time.Minute

// growClaim asks for a larger volume. Whether its class has any is the API
// server's to say, so that nobody has to read the class.
func (r *applier) growClaim(ctx context.Context, a plan.GrowClaim) error {
	if r.done.growthRefused != "" {
		return nil
	}
	size := resource.NewQuantity(a.Size, resource.BinarySI)
	asked, err := r.patchClaim(ctx, r.cluster, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		live, ours := planClaim(r.cluster.Name, c)
		if !ours {
			return refuse("claim %s is no member's", c.Name)
		}
		if err := plan.MayGrow(&live, a.Size); err != nil {
			return refused(err)
		}
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *size
		return nil
	})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		r.done.growthRefused = err.Error()
		r.refusals.Note(r.cluster, r.Clock.Now(), r.done.growthRefused)
		return nil
	case asked:
		r.claimEvent(r.cluster, a.Claim, "VolumeGrows", "Grow", "claim %s asks for %s", a.Claim.Name, size)
	}
	return err
}
