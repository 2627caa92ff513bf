package write

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// OwnMarks writes on a claim that the marks on it are its own.
func OwnMarks(c *corev1.PersistentVolumeClaim) {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationClaimUID, string(c.UID))
}

// carryOver makes the marks that an aside claim was made with its own.
func (w *Writer) carryOver(ctx context.Context, a action.CarryOver) error {
	return w.changeMarks(ctx, a.Claim, func(live *claims.Facts, is *claims.Claim, c *corev1.PersistentVolumeClaim) error {
		if !is.Fresh {
			return nil // the cache is stale
		}
		if err := claims.MayCarryOver(live, is); err != nil {
			return err
		}
		OwnMarks(c)
		return nil
	})
}

// noteRestored notes that a backup has brought the claim back.
func (w *Writer) noteRestored(ctx context.Context, a action.NoteRestored) error {
	noted := false
	err := w.changeMarks(ctx, a.Claim, func(live *claims.Facts, is *claims.Claim, c *corev1.PersistentVolumeClaim) error {
		if noted = false; !is.Unnoted && !is.Fresh {
			return nil // the cache is stale
		}
		if err := claims.MayNoteRestored(live, is); err != nil {
			return err
		}
		startAnew(c, a.Hold)
		noted = true
		return nil
	})
	if err == nil && noted {
		w.Rules.Event(a.Claim, "Restored", "Drain", "claim %s: a backup has brought it back, with what was written on an earlier claim, which counts no more: "+
			"annotate it with %s=retry to drain it", a.Claim.Name, cachev1alpha1.AnnotationDrain)
	}
	return err
}

// startAnew removes the marks of a claim that a backup has brought back, except for the leaving mark and the
// policy.
func startAnew(c *corev1.PersistentVolumeClaim, hold bool) {
	for _, key := range []string{cachev1alpha1.AnnotationDrain, cachev1alpha1.AnnotationReceipt, cachev1alpha1.AnnotationAttempts, cachev1alpha1.AnnotationProtected} {
		delete(c.Annotations, key)
	}
	if hold {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainHold)
	}
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAdopted, cachev1alpha1.AdoptedRestored)
	OwnMarks(c)
}

// changeMarks patches the live claim by its own translation, and by all live claims.
func (w *Writer) changeMarks(ctx context.Context, ref action.ClaimRef, change func(*claims.Facts, *claims.Claim, *corev1.PersistentVolumeClaim) error) error {
	found, err := w.Reader.LiveClaims(ctx)
	if err != nil {
		return err
	}
	_, err = w.Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		is, ours := w.Reader.Claim(c)
		if !ours || !w.Reader.Owns(c) {
			return read.Refuse("claim %s is not a member's", c.Name)
		}
		return read.RefusedBy(change(&claims.Facts{Claims: found.Claims}, &is, c))
	})
	return err
}
