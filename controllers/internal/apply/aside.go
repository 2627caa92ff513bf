package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
)

// setAside deletes the claim, which the finalizer keeps. From then on its volume is set aside like
// the volume of a claim that a person deleted.
func (r *run) setAside(ctx context.Context, ref action.ClaimRef) error {
	claim, err := r.Reader.LiveClaim(ctx, r.cluster.Namespace, ref)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return err
	}
	if err := r.maySetAside(ctx, claim); err != nil {
		return err
	}
	return client.IgnoreNotFound(r.Delete(ctx, claim,
		client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}))
}

// reserveVolume reserves the volume for the claim that is to take it over, which doesn't exist yet.
// An operator without rights to volumes does nothing: it has seen by the claim's phase that an
// administrator has reserved the volume.
func (r *run) reserveVolume(ctx context.Context, a action.ReserveVolume) error {
	pvc, err := r.claimToSetAside(ctx, a.Claim)
	if err != nil || pvc == nil {
		return err
	}
	return r.patchVolume(ctx, a.Volume, func(volume *corev1.PersistentVolume) error {
		switch observe.WhereIs(volume, pvc, a.To) {
		case claims.Here:
			volume.Spec.ClaimRef = claimReference(pvc.Namespace, a.To)
			return nil
		case claims.Reserved:
			return nil
		}
		return observe.Refuse("volume %s is not bound to claim %s", a.Volume, pvc.Name)
	})
}

// returnVolume binds the volume to its claim again, so that it is deleted with the claim. It asks
// claim.MayReturn about the live claim and volume.
func (r *run) returnVolume(ctx context.Context, a action.ReturnVolume) error {
	pvc, err := r.Reader.LiveClaim(ctx, r.cluster.Namespace, a.Claim)
	if err != nil || pvc == nil {
		return err
	}
	c, ours := observe.PlanClaim(r.cluster.Name, pvc)
	if !ours {
		return observe.Refuse("claim %s is not a member's", pvc.Name)
	}
	return r.patchVolume(ctx, a.Volume, func(volume *corev1.PersistentVolume) error {
		if c.Where = observe.WhereIs(volume, pvc, a.From); c.Where == claims.Here {
			return nil // the cache is stale
		}
		taken := volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID != "" // Kubernetes has bound it
		if err := claims.MayReturn(&c, taken); err != nil {
			return observe.RefusedBy(err)
		}
		volume.Spec.ClaimRef = claimReference(r.cluster.Namespace, a.Claim.Name)
		volume.Spec.ClaimRef.UID = a.Claim.UID
		return nil
	})
}

func claimReference(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

// patchVolume changes the live volume under an optimistic lock.
func (r *run) patchVolume(ctx context.Context, name string, change func(*corev1.PersistentVolume) error) error {
	volume, err := r.Reader.Volume(ctx, name)
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil || volume == nil {
		return err
	}
	before := volume.DeepCopy()
	if err := change(volume); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(before, volume) {
		return nil
	}
	return r.Patch(ctx, volume, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// createAside creates the claim that takes the volume over.
func (r *run) createAside(ctx context.Context, a action.CreateAside) error {
	claim, err := r.claimToSetAside(ctx, a.Claim)
	if err != nil || claim == nil {
		return err
	}
	mark, err := r.asideMark(ctx, claim)
	if err != nil {
		return err
	}
	aside := build.AsideClaim(claim, a.To, mark, a.StoredBy)
	if err := r.Create(ctx, aside); apierrors.IsAlreadyExists(err) {
		return r.asideExists(ctx, aside)
	} else if err != nil {
		return err
	}
	r.claimEvent(r.cluster, a.Claim, "SetAside", "SetAside", "claim %s was deleted: claim %s takes over its volume %s", claim.Name, a.To, a.Volume)
	return nil
}

// asideMark is the leaving mark for the volume of a member's claim that was deleted. Its number is
// higher than the numbers of all other marks. A claim that has a mark keeps its own.
func (r *run) asideMark(ctx context.Context, claim *corev1.PersistentVolumeClaim) (map[string]string, error) {
	if _, marked := claim.Annotations[cachev1alpha1.AnnotationLeaving]; marked {
		return nil, nil
	}
	live, err := r.Reader.LiveClaims(ctx, r.cluster)
	if err != nil {
		return nil, err
	}
	return build.LeavingMark(r.cluster, claims.NextLeft(live.Claims), r.now), nil
}

// asideExists tells why the claim exists already: it is the cluster's own, and the cache is stale
// or can't see it because it lacks its label; or it belongs to another owner.
func (r *run) asideExists(ctx context.Context, aside *corev1.PersistentVolumeClaim) error {
	live, err := observe.Get[corev1.PersistentVolumeClaim](ctx, r.Reader.Live, client.ObjectKeyFromObject(aside))
	if err != nil {
		return err
	}
	const of = cachev1alpha1.AnnotationAsideOf
	switch {
	case live == nil:
	case !identity.OwnClaim(r.cluster.Name, live) || live.Annotations[of] != aside.Annotations[of] || live.Spec.VolumeName != aside.Spec.VolumeName:
		return identity.NameTaken(live)
	default:
		if err := r.putLabel(ctx, live, r.cluster.Name); err != nil {
			return err
		}
	}
	return observe.Refuse("claim %s exists already: the cache is stale", aside.Name)
}

// skipAside applies a person's skip to the claim that was to take the volume over.
func (r *run) skipAside(ctx context.Context, a action.SkipAside) error {
	found, err := r.Reader.LiveClaims(ctx, r.cluster)
	if err != nil {
		return err
	}
	_, err = r.patchClaim(ctx, r.cluster, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		live, ours := observe.PlanClaim(r.cluster.Name, c)
		if !ours {
			return observe.Refuse("claim %s is not a member's", c.Name)
		}
		if err := claims.MaySkipAside(&claims.Facts{Claims: found.Claims}, &live); err != nil {
			return observe.RefusedBy(err)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip)
		return nil
	})
	return err
}
