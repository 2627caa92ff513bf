package write

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

func (w *Writer) deleteClaim(ctx context.Context, a action.DeleteClaim) error {
	pvc, err := w.Reader.LiveClaim(ctx, a.Claim)
	if err != nil || pvc == nil || pvc.DeletionTimestamp != nil {
		return err
	}
	c, err := w.mayRelease(ctx, pvc, a.Why)
	if err != nil {
		return err
	}
	if err := claims.MayDelete(c, a.Why); err != nil {
		return read.RefusedBy(err)
	}
	return w.deleteThis(ctx, pvc)
}

func (w *Writer) releaseClaim(ctx context.Context, a action.ReleaseClaim) error {
	why := string(a.Why)
	released, err := w.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.DeletionTimestamp == nil {
			why = string(a.Why) + "; it stays, with its volume, and nothing drains it"
		}
		if _, err := w.mayRelease(ctx, c, a.Why); err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(c, cachev1alpha1.ClaimFinalizer)
		return nil
	})
	if released {
		w.Done.Released = append(w.Done.Released, a)
		w.Rules.Event(a.Claim, "Released", "Release", "claim %s is released: %s", a.Claim.Name, why)
	}
	return err
}

// mayRelease asks claims.MayRelease about the live claim, and returns it.
func (w *Writer) mayRelease(ctx context.Context, pvc *corev1.PersistentVolumeClaim, why action.Release) (*claims.Claim, error) {
	c, err := w.claim(ctx, pvc)
	if err != nil {
		return nil, err
	}
	if why == action.BySetAside {
		return c, w.Rules.MayHandOver(ctx, c)
	}
	terms, err := w.terms(ctx, why)
	if err != nil {
		return nil, err
	}
	if why == action.ByPolicyRetain && c.Deleting {
		if c.Where, err = w.Reader.Where(ctx, pvc, c); err != nil {
			return nil, err
		}
	}
	returned, err := w.Rules.Returned(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := claims.MayRelease(&terms, c, why, returned); err != nil || why != action.ByUnrecoverable {
		return c, read.RefusedBy(err)
	}
	jobs, err := w.jobs(ctx)
	if err != nil {
		return nil, err
	}
	return c, read.RefusedBy(claims.MayReleaseUnreadable(jobs, c))
}

// terms reads the owner or the namespace if the reason for a release is about them. Other reasons are
// on the claim.
func (w *Writer) terms(ctx context.Context, why action.Release) (claims.Terms, error) {
	switch why {
	case action.ByReceipt, action.BySkip, action.NeverBound:
		return claims.Terms{}, nil
	case action.ByNamespace:
		terminates, err := read.NamespaceTerminates(ctx, w.Reader.Live, w.Reader.Object.GetNamespace())
		return claims.Terms{NamespaceTerminating: terminates}, err
	}
	return w.Rules.Terms(ctx)
}

// jobs reads the Jobs of drains, and how they ended.
func (w *Writer) jobs(ctx context.Context) (*claims.Facts, error) {
	live, err := w.Reader.LiveJobs(ctx)
	if err != nil {
		return nil, err
	}
	facts := &claims.Facts{}
	for i := range live.Jobs {
		if job := w.Reader.Job(&live.Jobs[i], live.Pods); job.Target == "" {
			facts.Jobs = append(facts.Jobs, job)
		}
	}
	return facts, nil
}
