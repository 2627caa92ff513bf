package write

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// setAside deletes the claim, which the finalizer keeps. From then on its volume is set aside like
// the volume of a claim that a person deleted.
func (w *Writer) setAside(ctx context.Context, ref action.ClaimRef) error {
	claim, err := w.Reader.LiveClaim(ctx, ref)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return err
	}
	if err := w.maySetAside(ctx, claim); err != nil {
		return err
	}
	return w.deleteThis(ctx, claim)
}

// reserveVolume reserves the volume for the claim that is to take it over, which doesn't exist yet.
// An operator without rights to volumes does nothing: it has seen by the claim's phase that an
// administrator has reserved the volume.
func (w *Writer) reserveVolume(ctx context.Context, a action.ReserveVolume) error {
	pvc, err := w.claimToSetAside(ctx, a.Claim)
	if err != nil || pvc == nil {
		return err
	}
	return w.patchVolume(ctx, a.Volume, func(volume *corev1.PersistentVolume) error {
		switch read.WhereIs(volume, pvc, a.To) {
		case claims.Here:
			volume.Spec.ClaimRef = claimReference(pvc.Namespace, a.To)
			return nil
		case claims.Reserved:
			return nil
		}
		return read.Refuse("volume %s is not bound to claim %s", a.Volume, pvc.Name)
	})
}

// returnVolume binds the volume to its claim again, so that it is deleted with the claim.
// returnVolume asks claims.MayReturn about the live claim and volume.
func (w *Writer) returnVolume(ctx context.Context, a action.ReturnVolume) error {
	pvc, err := w.Reader.LiveClaim(ctx, a.Claim)
	if err != nil || pvc == nil {
		return err
	}
	c, err := w.claim(ctx, pvc)
	if err != nil {
		return err
	}
	return w.patchVolume(ctx, a.Volume, func(volume *corev1.PersistentVolume) error {
		if c.Where = read.WhereIs(volume, pvc, a.From); c.Where == claims.Here {
			return nil // the cache is stale
		}
		taken := volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID != "" // Kubernetes has bound it
		if err := claims.MayReturn(c, taken); err != nil {
			return read.RefusedBy(err)
		}
		volume.Spec.ClaimRef = claimReference(w.Reader.Object.GetNamespace(), a.Claim.Name)
		volume.Spec.ClaimRef.UID = a.Claim.UID
		return nil
	})
}

func claimReference(namespace, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

// patchVolume changes the live volume under an optimistic lock.
func (w *Writer) patchVolume(ctx context.Context, name string, change func(*corev1.PersistentVolume) error) error {
	volume, err := w.Reader.Volume(ctx, name)
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
	return w.Client.Patch(ctx, volume, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// createAside creates the claim that takes the volume over.
func (w *Writer) createAside(ctx context.Context, a action.CreateAside) error {
	claim, err := w.claimToSetAside(ctx, a.Claim)
	if err != nil || claim == nil {
		return err
	}
	mark, err := w.asideMark(ctx, claim)
	if err != nil {
		return err
	}
	labels, annotations := w.Rules.Aside(a, claim)
	is, _ := w.Reader.Claim(claim)
	aside := AsideClaim(claim, &is, a.To, mark, labels, annotations)
	if err := w.Create(ctx, aside); apierrors.IsAlreadyExists(err) {
		return w.asideExists(ctx, aside)
	} else if err != nil {
		return err
	}
	w.Rules.Event(a.Claim, "SetAside", "SetAside", "claim %s was deleted: claim %s takes over its volume %s", claim.Name, a.To, a.Volume)
	return nil
}

// asideMark is the leaving mark for the volume of a member's claim that was deleted. Its number is
// higher than the numbers of all other marks, or that of its unit. A claim that has a mark keeps its own.
func (w *Writer) asideMark(ctx context.Context, claim *corev1.PersistentVolumeClaim) (map[string]string, error) {
	if _, marked := claim.Annotations[cachev1alpha1.AnnotationLeaving]; marked {
		return nil, nil
	}
	live, err := w.Reader.LiveClaims(ctx)
	if err != nil {
		return nil, err
	}
	c, _ := w.Reader.Claim(claim)
	return LeavingMark(claims.NumberFor(live.Claims, &c), w.Now, w.Rules.Decision()), nil
}

// asideExists tells why the claim exists already.
func (w *Writer) asideExists(ctx context.Context, aside *corev1.PersistentVolumeClaim) error {
	live, err := read.Get[corev1.PersistentVolumeClaim](ctx, w.Reader.Live, client.ObjectKeyFromObject(aside))
	if err != nil {
		return err
	}
	const of = cachev1alpha1.AnnotationAsideOf
	if live == nil {
		return w.exists(ctx, "claim", aside.Name, nil, false)
	}
	ours := w.Reader.Owns(live) && live.Annotations[of] == aside.Annotations[of] && live.Spec.VolumeName == aside.Spec.VolumeName
	return w.exists(ctx, "claim", aside.Name, live, ours)
}

// skipToo applies a person's skip of one claim of a hand-over to the other one.
func (w *Writer) skipToo(ctx context.Context, a action.SkipToo) error {
	found, err := w.Reader.LiveClaims(ctx)
	if err != nil {
		return err
	}
	_, err = w.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		live, err := w.claim(ctx, c)
		if err != nil {
			return err
		}
		if err := claims.MaySkipToo(&claims.Facts{Claims: found.Claims}, live); err != nil {
			return read.RefusedBy(err)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip)
		return nil
	})
	return err
}

// maySetAside asks claims.MaySetAside about the live claim.
func (w *Writer) maySetAside(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	c, err := w.claim(ctx, claim)
	if err != nil {
		return err
	}
	jobs, err := w.jobs(ctx)
	if err != nil {
		return err
	}
	if c.Where, err = w.Reader.Where(ctx, claim, c); err != nil {
		return err
	}
	if err := claims.MaySetAside(jobs, c); err != nil {
		return read.RefusedBy(err)
	}
	return w.Rules.MaySetAside(ctx, c)
}

// claimToSetAside reads the claim whose volume is to be set aside, and asks
// claims.MayReserve; nil if the claim is gone.
func (w *Writer) claimToSetAside(ctx context.Context, ref action.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := w.Reader.LiveClaim(ctx, ref)
	if err != nil || pvc == nil {
		return nil, err
	}
	c, err := w.claim(ctx, pvc)
	if err != nil {
		return nil, err
	}
	if c.Where, err = w.Reader.Where(ctx, pvc, c); err != nil {
		return nil, err
	}
	return pvc, read.RefusedBy(claims.MayReserve(c))
}

// AsideClaim is the claim that takes over the volume of a claim that is being deleted. From the start the
// aside claim has a leaving mark, the first claim's own or else the given one, and a person's request. Both
// count as those of the first claim, is, until they are carried over. more are other annotations.
func AsideClaim(claim *corev1.PersistentVolumeClaim, is *claims.Claim, name string, mark, labels, more map[string]string) *corev1.PersistentVolumeClaim {
	annotations := map[string]string{cachev1alpha1.AnnotationAsideOf: string(claim.UID), cachev1alpha1.AnnotationClaimUID: string(claim.UID)}
	maps.Copy(annotations, more)
	if _, marked := claim.Annotations[cachev1alpha1.AnnotationLeaving]; marked {
		mark = map[string]string{}
		for _, key := range []string{cachev1alpha1.AnnotationLeaving, cachev1alpha1.AnnotationLeft, cachev1alpha1.AnnotationPolicy} {
			if value, ok := claim.Annotations[key]; ok {
				mark[key] = value
			}
		}
	}
	maps.Copy(annotations, mark)
	switch {
	case is.Restored:
		annotations[cachev1alpha1.AnnotationAdopted] = cachev1alpha1.AdoptedRestored
	case is.Adopted:
		annotations[cachev1alpha1.AnnotationAdopted] = cachev1alpha1.AdoptedUnlabelled
	}
	// A retry is not needed, because a new claim is drained from the start.
	if is.KeptByAPerson() {
		annotations[cachev1alpha1.AnnotationDrain] = string(is.Request)
	}
	spec := claim.Spec.DeepCopy()
	// These fields choose or fill a new volume, but this volume exists.
	spec.Selector, spec.DataSource, spec.DataSourceRef = nil, nil, nil
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   claim.Namespace,
			Labels:      maps.Clone(labels),
			Annotations: annotations,
			Finalizers:  []string{cachev1alpha1.ClaimFinalizer},
		},
		Spec: *spec,
	}
}
