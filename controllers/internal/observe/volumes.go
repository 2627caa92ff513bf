package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/plan"
)

// VolumeInterval is how often a volume is looked at that somebody else must move:
// volumes are not watched, for they are everybody's.
const VolumeInterval = 30 * time.Second

// observeVolumes looks, live, at the volumes that may have to be set aside.
func (r *Reader) observeVolumes(ctx context.Context, o *State) error {
	o.Where = map[types.UID]plan.Where{}
	for i := range o.Claims {
		c := &o.Claims[i]
		p, ok := PlanClaim(o.Cluster.Name, c)
		returns := !p.LeavingSince.IsZero() && !p.Aside && p.Ordinal < *o.Cluster.Spec.Size
		if !ok || p.Volume == "" || !returns && (!p.Finalizer || !p.Deleting) {
			continue
		}
		volume, err := r.Volume(ctx, p.Volume)
		switch {
		case apierrors.IsForbidden(err):
			o.Where[p.UID] = whereUnseen(c)
		case err != nil:
			return fmt.Errorf("get the volume of claim %s: %w", p.Name, err)
		default:
			o.Where[p.UID] = WhereIs(volume, c, p.AsideName)
		}
	}
	return nil
}

// Volume reads it live; nil where there is none. Anybody may have written the name into a
// claim, and Kubernetes doesn't look at it: what can't be a volume's name is none.
func (r *Reader) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	return Get[corev1.PersistentVolume](ctx, r.Live, client.ObjectKey{Name: name})
}

// whereUnseen is for an operator that may not look at volumes. Kubernetes calls a
// claim lost whose volume an administrator moved.
func whereUnseen(c *corev1.PersistentVolumeClaim) plan.Where {
	if c.Status.Phase == corev1.ClaimLost {
		return plan.Reserved
	}
	return plan.Forbidden
}

// WhereIs tells where the claim's volume is; aside is the claim that is to take
// it over. A name alone doesn't make it this claim's: it may wait for another one.
func WhereIs(volume *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim, aside string) plan.Where {
	if volume == nil {
		return plan.Gone
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return plan.Elsewhere // anybody may take it; Kubernetes gives it back to a claim that is bound to it
	case ref.Namespace == c.Namespace && ref.Name == c.Name && ref.UID == c.UID:
		return plan.Here
	case ref.Namespace == c.Namespace && ref.Name == aside:
		return plan.Reserved
	}
	return plan.Elsewhere
}

// VolumesWait tells whether a volume waits for what no watch tells of.
func VolumesWait(p *plan.Plan) bool {
	return len(p.DeletedClaims) > 0 || slices.ContainsFunc(p.Drains, func(d plan.DrainState) bool { return d.Reason == plan.SettingAside })
}
