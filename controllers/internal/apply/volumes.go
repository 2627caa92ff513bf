package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	var after *corev1.PersistentVolumeClaim
	asked, err := r.claims.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		after = c
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
	refused := func(why string) {
		r.done.GrowthRefused = why
		r.Reader.GrowthRefused.Note(r.cluster, r.now, why)
	}
	switch {
	case read.Denied(err):
		refused(err.Error())
		return nil
	case asked && after.Spec.Resources.Requests.Storage().Value() < a.Size:
		refused(fmt.Sprintf("the operator asked for %s, and admission made %s of it", size, after.Spec.Resources.Requests.Storage()))
	case asked:
		r.claimEvent(r.cluster, a.Claim, "VolumeGrows", "Grow", "claim %s asks for %s", a.Claim.Name, size)
	}
	return err
}
