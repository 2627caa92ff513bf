package write

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// Annotate is Patch for changes of annotations that the operator reads. Annotate first patches the claim of
// the cache; the optimistic lock fails if the cache is stale.
func (w *Writer) Annotate(ctx context.Context, ref action.ClaimRef, change func(*corev1.PersistentVolumeClaim) error) (changed bool, err error) {
	cached, err := read.Get[corev1.PersistentVolumeClaim](ctx, w.Reader.Cache, client.ObjectKey{Namespace: w.Reader.Object.GetNamespace(), Name: ref.Name})
	if err == nil && cached != nil && cached.UID == ref.UID {
		before := cached.DeepCopy()
		if err := change(cached); err == nil && !equality.Semantic.DeepEqual(before, cached) {
			err := w.Client.Patch(ctx, cached, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if err == nil || !apierrors.IsConflict(err) {
				return err == nil, client.IgnoreNotFound(err)
			}
		}
	}
	return w.Patch(ctx, ref, change)
}

// Patch changes the live claim under an optimistic lock, and tells whether it did. If the claim is
// gone, has been replaced, or has the change already, Patch does nothing. Other controllers write to
// claims at the same time (pvc-protection, the volume binder). So after a conflict Patch reads the
// claim and decides once more.
func (w *Writer) Patch(ctx context.Context, ref action.ClaimRef, change func(*corev1.PersistentVolumeClaim) error) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := w.Reader.LiveClaim(ctx, ref)
		if err != nil || claim == nil {
			return err
		}
		before := claim.DeepCopy()
		if err := change(claim); err != nil || equality.Semantic.DeepEqual(before, claim) {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := w.Client.Patch(ctx, claim, patch); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed = true
		return nil
	})
	return changed, err
}

// AttemptsText is the value of AnnotationAttempts.
func AttemptsText(a action.Attempts) string { return fmt.Sprintf("%d/%s", a.Failed, a.Last) }

// LeavingMark returns the annotations of the leaving mark: the time, the number, and the decision
// about the volume.
func LeavingMark(number int64, now time.Time, decision string) map[string]string {
	return map[string]string{
		cachev1alpha1.AnnotationLeaving: now.UTC().Format(time.RFC3339),
		cachev1alpha1.AnnotationLeft:    strconv.FormatInt(number, 10),
		cachev1alpha1.AnnotationPolicy:  decision,
	}
}

// Mark writes the time at which the member was told to leave, and the decision about its volume. The number
// is claims.NumberFor of the live claims, or NextLeft. Mark never replaces an earlier mark, because the cache
// may be stale. Claims that are marked together have the same time and number. more changes the claim in the
// same write. If a backup has brought the claim back, what was written about the earlier claim no longer
// counts, and the drain is held. after is the claim with the mark, or nil if the claim is gone.
func (w *Writer) Mark(ctx context.Context, ref action.ClaimRef, number int64, more func(*corev1.PersistentVolumeClaim)) (after *corev1.PersistentVolumeClaim, err error) {
	now := w.Now.UTC().Truncate(time.Second)
	mark := LeavingMark(number, now, w.Rules.Decision())
	mark[cachev1alpha1.AnnotationClaimUID] = string(ref.UID)
	before := false
	var is *corev1.PersistentVolumeClaim
	marked, err := w.Annotate(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		is = c
		if _, before = c.Annotations[cachev1alpha1.AnnotationLeaving]; !before {
			if read.MarksOfAnother(c) {
				startAnew(c, true)
			}
			for key, value := range mark {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
			}
			more(c)
		}
		return nil
	})
	if marked {
		if w.Done.Marked == nil {
			w.Done.Marked = map[types.UID]time.Time{}
		}
		w.Done.Marked[ref.UID] = now
	}
	if err == nil && (marked || before) {
		after = is
	}
	return after, err
}

func (w *Writer) recordReceipt(ctx context.Context, a action.RecordReceipt) error {
	if err := a.Receipt.AddsUp(string(a.Claim.UID)); err != nil {
		return fmt.Errorf("refuse to record the receipt: %w", err)
	}
	recorded, err := w.Annotate(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationReceipt, a.Receipt.Text)
		return nil
	})
	if recorded {
		w.Rules.Event(a.Claim, "Drained", "Drain", "claim %s: %s", a.Claim.Name, w.Rules.Drained(a.Receipt))
		w.Done.Recorded = append(w.Done.Recorded, a)
	}
	return err
}

// countFailure writes the number of failures on the claim, because the failed Jobs are deleted.
func (w *Writer) countFailure(ctx context.Context, a action.CountFailure) error {
	_, err := w.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAttempts, AttemptsText(a.Attempts))
		return nil
	})
	return err
}

// clearRetry removes the request when the retry has begun. A person who asks for a retry wants the
// volume drained, even if another policy was decided before.
func (w *Writer) clearRetry(ctx context.Context, ref action.ClaimRef) error {
	_, err := w.Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		if clearRequest(c, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainRetry) {
			if was, _ := w.Reader.Claim(c); !was.Decided || was.Policy != claims.Drain {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationPolicy, string(cachev1alpha1.PolicyDrain))
			}
		}
		return nil
	})
	return err
}

// Clear removes this request of a person, unless another request has replaced it.
func (w *Writer) Clear(ctx context.Context, ref action.ClaimRef, annotation, request string) error {
	_, err := w.Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		clearRequest(c, annotation, request)
		return nil
	})
	return err
}

// clearRequest removes the request, and the number of failures before it, and tells whether it did.
func clearRequest(c *corev1.PersistentVolumeClaim, annotation, request string) bool {
	if c.Annotations[annotation] != request {
		return false
	}
	delete(c.Annotations, annotation)
	delete(c.Annotations, cachev1alpha1.AnnotationAttempts)
	return true
}
