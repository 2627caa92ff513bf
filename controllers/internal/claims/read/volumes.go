package read

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims"
)

// VolumeInterval is how often the operator reads a volume that an administrator or Kubernetes has
// to bind. Volumes are not watched, because they are cluster-scoped.
const VolumeInterval = 30 * time.Second

// Where tells where the claim's volume is, by a live read of the volume.
func (r *Reader) Where(ctx context.Context, c *corev1.PersistentVolumeClaim, p *claims.Claim) (claims.Where, error) {
	if p.Volume == "" {
		return p.Where, nil
	}
	volume, err := r.Volume(ctx, p.Volume)
	switch {
	case apierrors.IsForbidden(err):
		return whereUnseen(c), nil
	case err != nil:
		return claims.NotLookedAt, fmt.Errorf("get the volume of claim %s: %w", p.Name, err)
	}
	return WhereIs(volume, c, p.AsideName), nil
}

// Volume reads a volume live; nil if there is none. Any client may have written its name into a
// claim, so an invalid name counts as none.
func (r *Reader) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil
	}
	return Get[corev1.PersistentVolume](ctx, r.Live, client.ObjectKey{Name: name})
}

// whereUnseen is Where for an operator that may not read volumes. The phase of a claim is Lost when
// an administrator has bound its volume to another claim.
func whereUnseen(c *corev1.PersistentVolumeClaim) claims.Where {
	if c.Status.Phase == corev1.ClaimLost {
		return claims.Reserved
	}
	return claims.Forbidden
}

// WhereIs tells where the claim's volume is. asideName names the claim that is to take the volume
// over. UIDs are compared, too, because a volume may wait for another claim of the same name.
func WhereIs(volume *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim, asideName string) claims.Where {
	if volume == nil {
		return claims.Gone
	}
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return claims.Elsewhere // any claim may take the volume
	case ref.Namespace == c.Namespace && ref.Name == c.Name && ref.UID == c.UID:
		return claims.Here
	case ref.Namespace == c.Namespace && ref.Name == c.Name && ref.UID == "" && c.Status.Phase == corev1.ClaimPending:
		return claims.Promised
	case ref.Namespace == c.Namespace && ref.Name == asideName:
		return claims.Reserved
	}
	return claims.Elsewhere
}
