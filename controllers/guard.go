package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// errRefused means that what the plan saw in the cache is not true any more. It
// is no failure: the next reconcile, on the event that the cache still lacks or
// after refusedInterval, sees more.
var errRefused = errors.New("refused")

const refusedInterval = 500 * time.Millisecond

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// liveClaim reads the claim from the API server; nil where it is gone, or where
// another claim has taken its name.
func (r *MemcachedReconciler) liveClaim(ctx context.Context, o *observed, ref plan.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := get[corev1.PersistentVolumeClaim](ctx, r.Live, client.ObjectKey{Namespace: o.cluster.Namespace, Name: ref.Name})
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
}

// labelled selects the cluster's objects of one component, live.
func labelled(o *observed, component string) []client.ListOption {
	return []client.ListOption{
		client.InNamespace(o.cluster.Namespace),
		client.MatchingLabels{
			cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy,
			cachev1alpha1.LabelInstance:  o.cluster.Name,
			cachev1alpha1.LabelComponent: component,
		},
	}
}

// maySetReplicas guards invariants 5 and 11: the size doesn't change while a
// drain runs, no member returns on a volume that it left, and none leaves a
// volume that isn't marked. It tells whether the size is set already: then the
// cache is behind, and its event is next.
func (r *MemcachedReconciler) maySetReplicas(ctx context.Context, o *observed, replicas int32) (behind bool, err error) {
	members, err := get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(o.cluster))
	if err != nil {
		return false, err
	}
	if members != nil && ptr.Deref(members.Spec.Replicas, 1) == replicas {
		return true, nil
	}
	running, err := r.runningJobs(ctx, o)
	if err != nil {
		return false, err
	}
	for _, job := range running {
		if job.Survivors != replicas {
			return false, refuse("Job %s drains into %d members", job.Name, job.Survivors)
		}
	}
	return false, r.claimsAllow(ctx, o, replicas)
}

// claimsAllow checks the claims of members that would return or leave.
func (r *MemcachedReconciler) claimsAllow(ctx context.Context, o *observed, replicas int32) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &claims, labelled(o, cachev1alpha1.ComponentMember)...); err != nil {
		return err
	}
	for i := range claims.Items {
		c, ok := planClaim(o.cluster.Name, &claims.Items[i])
		switch {
		case !ok:
		case c.Ordinal < replicas && !c.Released.IsZero():
			return refuse("claim %s was left by its member, and is still there", c.Name)
		case c.Ordinal >= replicas && replicas > 0 && c.Released.IsZero():
			return refuse("claim %s is not marked as released yet", c.Name)
		}
	}
	return nil
}

// mayDrain guards invariants 5 to 7: the member has left for good, its pod is
// gone, no other drainer is at the volume, the survivors are the members, and
// no more drains run than may.
func (r *MemcachedReconciler) mayDrain(ctx context.Context, o *observed, a plan.CreateDrain) error {
	claim, err := r.liveClaim(ctx, o, a.Claim)
	switch {
	case err != nil:
		return err
	case claim == nil || claim.DeletionTimestamp != nil:
		return refuse("claim %s is being deleted", a.Claim.Name)
	case claim.Annotations[cachev1alpha1.AnnotationReleased] == "":
		return refuse("claim %s is a member's", a.Claim.Name)
	case !slices.Contains(claim.Finalizers, cachev1alpha1.ClaimFinalizer):
		return refuse("claim %s is not held by the finalizer", a.Claim.Name)
	}
	key := client.ObjectKeyFromObject(o.cluster)
	members, err := get[appsv1.StatefulSet](ctx, r.Live, key)
	if err != nil {
		return err
	}
	if members == nil || ptr.Deref(members.Spec.Replicas, 1) != a.Survivors || a.Survivors > a.Claim.Ordinal {
		return refuse("the StatefulSet is not at %d members", a.Survivors)
	}
	running, err := r.runningJobs(ctx, o)
	if err != nil {
		return err
	}
	if n := planCluster(o).Parallelism; len(running) >= int(n) {
		return refuse("%d drains run already, %d may", len(running), n)
	}
	return r.volumeUnused(ctx, o, a.Claim)
}

// runningJobs are the drains whose Job has not ended.
func (r *MemcachedReconciler) runningJobs(ctx context.Context, o *observed) ([]plan.Job, error) {
	var jobs batchv1.JobList
	if err := r.Live.List(ctx, &jobs, labelled(o, cachev1alpha1.ComponentDrainer)...); err != nil {
		return nil, err
	}
	var running []plan.Job
	for i := range jobs.Items {
		if job := planJob(&jobs.Items[i], nil); job.State == plan.JobActive {
			running = append(running, job)
		}
	}
	return running, nil
}

// volumeUnused is invariant 6, seen from the member's pod, whatever its labels
// are by now, and from all pods that carry ours: members and drainers.
func (r *MemcachedReconciler) volumeUnused(ctx context.Context, o *observed, claim plan.ClaimRef) error {
	name := build.PodName(o.cluster.Name, claim.Ordinal)
	member, err := get[corev1.Pod](ctx, r.Live, client.ObjectKey{Namespace: o.cluster.Namespace, Name: name})
	if err != nil {
		return err
	}
	if member != nil {
		return refuse("pod %s is not gone", name)
	}
	var pods corev1.PodList
	err = r.Live.List(ctx, &pods, client.InNamespace(o.cluster.Namespace),
		client.MatchingLabels{cachev1alpha1.LabelInstance: o.cluster.Name})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		for _, v := range pods.Items[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				return refuse("pod %s uses claim %s", pods.Items[i].Name, claim.Name)
			}
		}
	}
	return nil
}

// mayRelease is invariant 1, checked on the live claim right before its
// finalizer goes: a complete receipt for exactly this claim is recorded on it,
// or the user said so.
func (r *MemcachedReconciler) mayRelease(ctx context.Context, o *observed, claim *corev1.PersistentVolumeClaim, why plan.Release) error {
	switch why {
	case plan.ByReceipt:
		receipt, err := contract.ParseReceipt(claim.Annotations[cachev1alpha1.AnnotationReceipt])
		if err == nil {
			err = receipt.AddsUp(string(claim.UID))
		}
		if err != nil {
			return refuse("claim %s has no receipt that adds up: %v", claim.Name, err)
		}
		return nil
	case plan.BySkip:
		if claim.Annotations[cachev1alpha1.AnnotationDrain] != cachev1alpha1.DrainSkip {
			return refuse("claim %s is not annotated with a skip", claim.Name)
		}
		return nil
	case plan.NeverBound:
		if claim.Spec.VolumeName != "" {
			return refuse("claim %s is bound to volume %s", claim.Name, claim.Spec.VolumeName)
		}
		return nil
	case plan.ByNamespace:
		terminates, err := namespaceTerminates(ctx, r.Live, claim.Namespace)
		if err == nil && !terminates {
			err = refuse("namespace %s is not terminating", claim.Namespace)
		}
		return err
	}
	return r.mayReleaseByCluster(ctx, o, claim, why)
}

// mayReleaseByCluster checks the reasons that the live Memcached must give.
func (r *MemcachedReconciler) mayReleaseByCluster(
	ctx context.Context, o *observed, claim *corev1.PersistentVolumeClaim, why plan.Release,
) error {
	live, err := get[cachev1alpha1.Memcached](ctx, r.Live, client.ObjectKeyFromObject(o.cluster))
	if err != nil {
		return err
	}
	// Where there was none, one that is there now is a successor: it keeps what
	// it finds.
	gone := live == nil || live.DeletionTimestamp != nil || !o.absent && live.UID != o.cluster.UID
	switch {
	case why == plan.ByClusterDeletion && gone:
		return nil
	case gone:
		return refuse("the Memcached is gone")
	case claim.Annotations[cachev1alpha1.AnnotationReleased] == "":
		return refuse("claim %s is a member's", claim.Name)
	case why == plan.ByPolicyDelete && live.Spec.Drain.Policy == cachev1alpha1.PolicyDelete,
		why == plan.ByPolicyRetain && live.Spec.Drain.Policy == cachev1alpha1.PolicyRetain:
		return nil
	}
	return refuse("the Memcached does not say that claim %s may go (%s)", claim.Name, why)
}

// nothingHeld guards the cluster's own finalizer: once it is gone, nobody looks
// after the claims.
func (r *MemcachedReconciler) nothingHeld(ctx context.Context, o *observed) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &claims, labelled(o, cachev1alpha1.ComponentMember)...); err != nil {
		return err
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		_, ours := build.ClaimOrdinal(o.cluster.Name, c.Name)
		if ours && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return refuse("claim %s is still held", c.Name)
		}
	}
	return nil
}
