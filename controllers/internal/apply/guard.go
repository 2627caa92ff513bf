package apply

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
)

// maySetReplicas asks plan.MaySetReplicas. stale is true if the size is set already, and the cache
// doesn't have it yet.
func (r *run) maySetReplicas(ctx context.Context, replicas int32) (stale bool, err error) {
	live, err := r.liveForSize(ctx)
	if err != nil {
		return false, err
	}
	if live.StatefulSet.Exists && live.StatefulSet.Replicas == replicas {
		return true, nil
	}
	if err := r.lookForMembers(ctx, live, replicas); err != nil {
		return false, err
	}
	return false, read.RefusedBy(errors.Join(plan.MaySetReplicas(&live.Observed, replicas), plan.MayShrink(&live.Observed, replicas)))
}

// mayMark asks plan.MayMark. All marks of a reconcile share one live read.
func (r *run) mayMark(ctx context.Context, claim action.ClaimRef) (*observe.View, error) {
	live, err := r.live(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.lookForMembers(ctx, live, live.StatefulSet.Replicas); err != nil {
		return nil, err
	}
	return live, read.RefusedBy(plan.MayMark(&live.Observed, claim.Ordinal))
}

// live reads from the API server right before steps that can't be undone. Steps of the same kind
// share one read, and add their own Jobs to it.
func (r *run) live(ctx context.Context) (*observe.View, error) {
	return r.liveWithKnown(ctx, observe.Known{})
}

// liveWithKnown is live, without a read of known facts.
func (r *run) liveWithKnown(ctx context.Context, known observe.Known) (*observe.View, error) {
	if r.view != nil {
		return r.view, nil
	}
	v, err := r.Reader.ViewBefore(ctx, r.cluster, known)
	if err != nil {
		return nil, err
	}
	if err := r.allLabelled(ctx, v.Found); err != nil {
		return nil, err
	}
	r.unlabelled = append(r.unlabelled, v.Unlabelled...)
	r.view = v
	return v, nil
}

// liveForSize is live before the size is set. If the step creates the StatefulSet, the API server
// refuses if one exists, so less has to be read.
func (r *run) liveForSize(ctx context.Context) (*observe.View, error) {
	if r.present.StatefulSet != nil {
		return r.live(ctx)
	}
	return r.liveWithKnown(ctx, observe.Known{NoStatefulSet: true, NoJobs: r.first, List: r.listMade})
}

// lookForMembers adds to the live read the claims that members below replicas would use. lookForMembers refuses if
// a claim is another owner's, or if the cache can't see it.
func (r *run) lookForMembers(ctx context.Context, live *observe.View, replicas int32) error {
	if err := r.Reader.LookForMembers(ctx, r.cluster, live, max(replicas, live.StatefulSet.Replicas)); err != nil {
		return err
	}
	return r.allLabelled(ctx, live.Found)
}

// allLabelled refuses if the cluster has claims that the plan doesn't know, because the cache can't see them.
// These claims are adopted after the plan's last step (labelFound).
func (r *run) allLabelled(ctx context.Context, found *read.LiveClaims) error {
	claims, err := r.toAdopt(ctx, r.cluster, found)
	claims = slices.DeleteFunc(claims, r.isDenied)
	if err == nil && len(claims) > 0 {
		r.unadopted = claims
		return read.Refuse("claims lack the label %s: %d", cachev1alpha1.LabelCluster, len(claims))
	}
	return err
}

// isDenied tells whether the API server has denied the claim its label a moment ago. The live read has the claim
// all the same. Before the first member runs, only guards find such a claim.
func (r *run) isDenied(c action.ClaimRef) bool {
	if r.denied[c.UID] {
		return true
	}
	why, is := r.Reader.Obstructed.Known(client.ObjectKeyFromObject(r.cluster), r.now)[c.UID]
	if is = is && !why.Vanished && why.Until.After(r.now); is && !slices.Contains(r.withoutLabel, why.Why) {
		r.withoutLabel = append(r.withoutLabel, why.Why)
	}
	return is
}

// mayWriteList asks plan.MayWriteList. locked is the present list if the write fails unless this is
// its latest version. For the first ring of a cluster only locked and the members are read, because
// nothing has been drained or moved before.
func (r *run) mayWriteList(ctx context.Context, a action.WriteList, locked *corev1.ConfigMap) error {
	if r.view == nil && locked != nil && observe.NeverListed(locked) {
		first, err := r.Reader.ViewBefore(ctx, r.cluster, observe.Known{NoJobs: true, Locked: locked})
		if err != nil {
			return err
		}
		if err := r.allLabelled(ctx, first.Found); err != nil {
			return err
		}
		if set := first.StatefulSet; set.Exists && set.Replicas == a.Replicas {
			return read.RefusedBy(plan.MayWriteList(&first.Observed, a))
		}
	}
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if set := live.StatefulSet; !set.Exists || set.Replicas != a.Replicas {
		if err := r.lookForMembers(ctx, live, a.Replicas); err != nil {
			return err
		}
	}
	return read.RefusedBy(plan.MayWriteList(&live.Observed, a))
}

// mayMove asks plan.MayMove.
func (r *run) mayMove(ctx context.Context, a action.CreateMove) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	return read.RefusedBy(plan.MayMove(&live.Observed, a))
}

// mayRemoveOwnerFinalizer asks claims.MayRemoveOwnerFinalizer.
func (r *run) mayRemoveOwnerFinalizer(ctx context.Context) error {
	found, err := r.claims.Reader.LiveClaims(ctx)
	if err != nil {
		return err
	}
	if err := r.allLabelled(ctx, found); err != nil {
		return err // the refusal lasts until the cache has the adopted claims, which are then released
	}
	return read.RefusedBy(claims.MayRemoveOwnerFinalizer(&claims.Facts{Claims: found.Claims}))
}
