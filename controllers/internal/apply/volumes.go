package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
)

// growClaim asks for a larger volume. The API server decides whether the volume may grow, so the
// operator needn't read the storage class.
func (r *run) growClaim(ctx context.Context, a action.GrowClaim) error {
	if _, refused := r.Reader.GrowthRefused.Last(r.cluster, r.now, observe.GrowthInterval); refused || r.done.GrowthRefused != "" {
		return nil
	}
	size := resource.NewQuantity(a.Size, resource.BinarySI)
	asked, err := r.claims.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		live, ours := observe.PlanClaim(r.cluster.Name, c)
		if !ours {
			return read.Refuse("claim %s is not a member's", c.Name)
		}
		if err := claims.MayGrow(&live, a.Size); err != nil {
			return read.RefusedBy(err)
		}
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *size
		return nil
	})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		r.done.GrowthRefused = err.Error()
		r.Reader.GrowthRefused.Note(r.cluster, r.now, r.done.GrowthRefused)
		return nil
	case asked:
		r.claimEvent(r.cluster, a.Claim, "VolumeGrows", "Grow", "claim %s asks for %s", a.Claim.Name, size)
	}
	return err
}
