package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/writelog"
	"example.com/memcached-operator/drainer/contract"
)

// apply does what the plan says, in its order, up to the first failure. Only what
// brings the members about holds up nothing but the members: what a person wrote in the
// spec is no reason for a drain to stop. For a paused cluster it does nothing.
func (r *MemcachedReconciler) apply(ctx context.Context, o *observed, p plan.Plan) error {
	if paused(o.cluster) {
		o.keep()
		return nil
	}
	var failed error
	without := false
	for _, action := range p.Actions {
		if without && bringsMembers(action) {
			continue
		}
		if !keepsLiveView(action) {
			o.live = nil
		}
		err := r.do(writelog.Because(ctx, action.String()), o, action)
		if !keepsLiveView(action) {
			o.live = nil
		}
		if err == nil {
			continue
		}
		if errors.Is(err, errRefused) {
			logf.FromContext(ctx).V(1).Info("Refused a step", "step", action.String(), "why", err.Error())
		}
		failed = worse(failed, fmt.Errorf("%s: %w", action, err))
		switch {
		case bringsMembers(action):
			without = true
		case !standsBeside(action):
			return failed
		}
	}
	return failed
}

// bringsMembers tells whether the action is one of those that bring the members about, in
// this order: their names, where clients look, who may reach them, and at last they
// themselves. Each needs those before it.
func bringsMembers(action plan.Action) bool {
	switch action.(type) {
	case plan.ApplyService, plan.WriteList, plan.ApplyNetworkPolicy, plan.WriteBinding, plan.ApplyStatefulSet, plan.ApplyDeployment:
		return true
	}
	return false
}

// standsBeside tells whether nothing needs what the action brings about.
func standsBeside(action plan.Action) bool {
	switch action.(type) {
	case plan.ApplyBudget, plan.ApplyServiceMonitor:
		return true
	}
	return false
}

// keepsLiveView tells whether the action rests on what was read for others of its kind
// that went before it: it changes nothing of that but by what it adds itself.
func keepsLiveView(action plan.Action) bool {
	switch action.(type) {
	case plan.MarkReleased, plan.CreateDrain, plan.CreatePlacement:
		return true
	}
	return false
}

// worse returns what a person should hear of: a failure rather than a refusal,
// and of two alike the first.
func worse(first, second error) error {
	if first == nil || errors.Is(first, errRefused) && !errors.Is(second, errRefused) {
		return second
	}
	return first
}

func (r *MemcachedReconciler) do(ctx context.Context, o *observed, action plan.Action) error {
	switch a := action.(type) {
	case plan.AddClusterFinalizer:
		return r.patchFinalizer(ctx, o, controllerutil.AddFinalizer)
	case plan.RemoveClusterFinalizer:
		return r.removeClusterFinalizer(ctx, o)
	case plan.ApplyService:
		return r.applyService(ctx, o)
	case plan.WriteList:
		return r.writeList(ctx, o, a)
	case plan.ApplyNetworkPolicy:
		return r.applyNetworkPolicy(ctx, o)
	case plan.WriteBinding:
		return r.writeBinding(ctx, o, a)
	case plan.ApplyStatefulSet:
		return r.applyStatefulSet(ctx, o, a)
	case plan.ApplyDeployment:
		return r.applyDeployment(ctx, o, a)
	case plan.ApplyBudget:
		return r.applyBudget(ctx, o)
	case plan.ApplyServiceMonitor:
		return r.applyServiceMonitor(ctx, o)
	case plan.DeleteMembers:
		return r.deleteObject(ctx, o.statefulSet)
	case plan.HoldClaim:
		_, err := r.patchClaim(ctx, o, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
			controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
			return nil
		})
		return err
	case plan.MarkReleased:
		return r.markReleased(ctx, o, a)
	case plan.CreateDrain:
		return r.createDrain(ctx, o, a)
	case plan.RecordReceipt:
		return r.recordReceipt(ctx, o, a)
	case plan.CountFailure:
		return r.countFailure(ctx, o, a)
	case plan.ClearRetry:
		return r.clearRequest(ctx, o, a.Claim, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainRetry)
	case plan.CreatePlacement:
		return r.createPlacement(ctx, o, a)
	case plan.RecordPlaced:
		return r.recordPlaced(ctx, o, a)
	case plan.ClearPlacementRetry:
		return r.clearRequest(ctx, o, a.Claim, cachev1alpha1.AnnotationPlacement, cachev1alpha1.PlacementRetry)
	case plan.DeleteJob:
		return r.deleteJob(ctx, o, a)
	case plan.DeleteClaim:
		return r.deleteClaim(ctx, o, a)
	case plan.SetAside:
		return r.setAside(ctx, o, a.Claim)
	case plan.MoveVolume:
		return r.moveVolume(ctx, o, a)
	case plan.CreateAside:
		return r.createAside(ctx, o, a)
	case plan.MoveBack:
		return r.moveBack(ctx, o, a)
	case plan.GrowClaim:
		return r.growClaim(ctx, o, a)
	case plan.ReleaseClaim:
		return r.releaseClaim(ctx, o, a)
	}
	return fmt.Errorf("unknown action %T", action)
}

func (r *MemcachedReconciler) createDrain(ctx context.Context, o *observed, a plan.CreateDrain) error {
	if err := r.mayDrain(ctx, o, a); err != nil {
		return err
	}
	job := build.DrainJob(o.cluster, r.Options, a.Claim.Name, a.Claim.UID, a.Survivors, o.claimNeverStarted(a.Claim))
	if err := r.createJob(ctx, o, job); err != nil {
		return err
	}
	o.jobs = append(o.jobs, *job) // for this reconcile's status
	o.live.Jobs = append(o.live.Jobs, planJob(job, nil))
	r.claimEvent(o, a.Claim, "DrainStarted", "Drain", "Job %s drains claim %s into %d members", job.Name, a.Claim.Name, a.Survivors)
	return nil
}

// createJob creates the Job. Where one of its name is there, it is the cluster's, and
// the cache is behind or can't see it for want of its label; or it is somebody else's,
// and in the way.
func (r *MemcachedReconciler) createJob(ctx context.Context, o *observed, job *batchv1.Job) error {
	err := r.Create(ctx, job)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := get[batchv1.Job](ctx, r.Live, client.ObjectKeyFromObject(job))
	if err != nil {
		return err
	}
	switch {
	case live == nil:
	case !ownJob(o.cluster, live):
		return taken(live)
	default:
		if err := r.putLabel(ctx, live, o.cluster.Name); err != nil {
			return err
		}
	}
	return refuse("Job %s exists already: the cache is behind", job.Name)
}

func (r *MemcachedReconciler) recordReceipt(ctx context.Context, o *observed, a plan.RecordReceipt) error {
	if err := a.Receipt.AddsUp(string(a.Claim.UID)); err != nil {
		return fmt.Errorf("not a receipt to record: %w", err)
	}
	b, err := a.Receipt.Marshal()
	if err != nil {
		return err
	}
	recorded, err := r.patchClaim(ctx, o, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationReceipt, string(b))
		return nil
	})
	if recorded {
		r.claimEvent(o, a.Claim, "Drained", "Drain", "claim %s: %s", a.Claim.Name, summary(a.Receipt))
		total, phases := o.drainTimes(a.Claim, a.Receipt, r.Clock.Now())
		r.Metrics.Drained(a.Receipt, total, phases)
	}
	return err
}

func summary(r *contract.Receipt) string {
	return fmt.Sprintf("%d items found, %d added, %d already present, %d expired, %d invalidated, %d bytes",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.Bytes)
}

// patchFinalizer changes the cluster's finalizers under an optimistic lock.
func (r *MemcachedReconciler) patchFinalizer(ctx context.Context, o *observed, change func(client.Object, string) bool) error {
	before := o.cluster.DeepCopy()
	if !change(o.cluster, cachev1alpha1.ClusterFinalizer) {
		return nil
	}
	return r.Patch(ctx, o.cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *MemcachedReconciler) removeClusterFinalizer(ctx context.Context, o *observed) error {
	if o.absent {
		return nil
	}
	if err := r.nothingHeld(ctx, o); err != nil {
		return err
	}
	if err := r.patchFinalizer(ctx, o, controllerutil.RemoveFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	o.finalizerRemoved = true
	return nil
}

// markReleased writes the time at which the member was told to leave: once, for
// a cache that is behind must not make it a later one. Members that leave together
// have the same time: the volumes of those that left later are drained first.
func (r *MemcachedReconciler) markReleased(ctx context.Context, o *observed, a plan.MarkReleased) error {
	claim := a.Claim
	if err := r.mayMark(ctx, o, claim); err != nil {
		return err
	}
	now := o.now.UTC().Truncate(time.Second)
	marked, err := r.patchClaim(ctx, o, claim, func(c *corev1.PersistentVolumeClaim) error {
		if _, marked := c.Annotations[cachev1alpha1.AnnotationReleased]; !marked {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationReleased, now.Format(time.RFC3339))
			delete(c.Annotations, cachev1alpha1.AnnotationAttempts) // those of placements
			if a.Unplaced {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationUnplaced, "true")
			}
			if neverStarted(o.pods, o.cluster.Name, claim.Ordinal, c, now) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationNeverStarted, "true")
			}
		}
		return nil
	})
	if marked {
		o.marked[claim.UID] = now
	}
	return err
}

// clearRequest removes this request of a person, and no other that came after it.
func (r *MemcachedReconciler) clearRequest(ctx context.Context, o *observed, claim plan.ClaimRef, annotation, request string) error {
	_, err := r.patchClaim(ctx, o, claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Annotations[annotation] == request {
			delete(c.Annotations, annotation)
			delete(c.Annotations, cachev1alpha1.AnnotationAttempts)
		}
		return nil
	})
	return err
}

// countFailure keeps on the claim how often moving its items has failed: the Jobs
// that did so are deleted.
func (r *MemcachedReconciler) countFailure(ctx context.Context, o *observed, a plan.CountFailure) error {
	_, err := r.patchClaim(ctx, o, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAttempts, fmt.Sprintf("%d/%s", a.Attempts.Failed, a.Attempts.Last))
		return nil
	})
	return err
}

// patchClaim changes the claim as it is now, under an optimistic lock, and tells
// whether it did. A claim that is gone, or has a successor, or has the change
// already, needs none. Other controllers write on claims at the same moments
// as we do (its protection, its volume): then it is looked at, and decided
// about, once more.
func (r *MemcachedReconciler) patchClaim(
	ctx context.Context, o *observed, ref plan.ClaimRef, change func(*corev1.PersistentVolumeClaim) error,
) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := r.liveClaim(ctx, o, ref)
		if err != nil || claim == nil {
			return err
		}
		before := claim.DeepCopy()
		if err := change(claim); err != nil || equality.Semantic.DeepEqual(before, claim) {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Patch(ctx, claim, patch); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed = true
		return nil
	})
	return changed, err
}

// deleteObject deletes exactly this object, its dependents in the background.
func (r *MemcachedReconciler) deleteObject(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(r.Delete(ctx, object,
		client.Preconditions{UID: ptr.To(object.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// deleteJob deletes the Job, unless that is done and the cache is behind.
func (r *MemcachedReconciler) deleteJob(ctx context.Context, o *observed, a plan.DeleteJob) error {
	job, err := get[batchv1.Job](ctx, r.Live, client.ObjectKey{Namespace: o.cluster.Namespace, Name: a.Name})
	if err != nil || job == nil || job.UID != a.UID || job.DeletionTimestamp != nil {
		return err
	}
	return r.deleteObject(ctx, job)
}

func (r *MemcachedReconciler) deleteClaim(ctx context.Context, o *observed, a plan.DeleteClaim) error {
	claim, err := r.liveClaim(ctx, o, a.Claim)
	if err != nil || claim == nil || claim.DeletionTimestamp != nil {
		return err
	}
	if err := r.mayRelease(ctx, o, claim, a.Why); err != nil {
		return err
	}
	if c, _ := planClaim(o.cluster.Name, claim); plan.MayDelete(&c, a.Why) != nil {
		return refused(plan.MayDelete(&c, a.Why))
	}
	return client.IgnoreNotFound(r.Delete(ctx, claim,
		client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}))
}

func (r *MemcachedReconciler) releaseClaim(ctx context.Context, o *observed, a plan.ReleaseClaim) error {
	released, err := r.patchClaim(ctx, o, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		if err := r.mayRelease(ctx, o, c, a.Why); err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(c, cachev1alpha1.ClaimFinalizer)
		return nil
	})
	if released {
		r.Metrics.Released(a.Why, o.releaseTime(a.Claim, r.Clock.Now()))
		r.claimEvent(o, a.Claim, "Released", "Release", "claim %s is let go: %s", a.Claim.Name, a.Why)
	}
	return err
}
