package apply

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// startEmpty tells the supervisor of the member that is out to start its memcached empty.
func (r *run) startEmpty(ctx context.Context, a action.StartEmpty) error {
	i := slices.IndexFunc(r.present.Pods, func(p corev1.Pod) bool { return p.UID == a.Pod.UID })
	text := contract.StepOut(a.Serial, string(a.Pod.UID))
	if a.Aside {
		text = contract.StepAside(a.Serial, string(a.Pod.UID))
	}
	if i < 0 || r.present.Pods[i].Annotations[cachev1alpha1.AnnotationStepOut] == text {
		return nil
	}
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := plan.MayStartEmpty(&live.Observed, a); err != nil {
		return read.RefusedBy(err)
	}
	return r.annotatePod(ctx, &r.present.Pods[i], map[string]string{cachev1alpha1.AnnotationStepOut: text})
}

// endAside tells the supervisor of a member that it may be ready again. Another annotation would say that it starts empty.
func (r *run) endAside(ctx context.Context, a action.EndAside) error {
	i := slices.IndexFunc(r.present.Pods, func(p corev1.Pod) bool { return p.UID == a.Pod.UID })
	if i < 0 {
		return nil
	}
	pod := &r.present.Pods[i]
	text := pod.Annotations[cachev1alpha1.AnnotationStepOut]
	if !contract.StepsAside(text) {
		return nil
	}
	ready := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&ready.ObjectMeta, cachev1alpha1.AnnotationStepOut, contract.EndAside(text))
	return client.IgnoreNotFound(r.Patch(ctx, ready, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})))
}

// openPartition is for a StatefulSet that stays without its Memcached: all its members get its template, and one
// at a time may be evicted.
func (r *run) openPartition(ctx context.Context, a action.OpenPartition) error {
	set := r.present.StatefulSet
	if set == nil || set.UID != a.UID {
		return nil
	}
	budget, err := read.Get[policyv1.PodDisruptionBudget](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	if err == nil && budget != nil && build.EvictsNone(budget) && identity.Selector(budget).Matches(labels.Set(budget.Labels)) {
		err = client.IgnoreNotFound(r.Patch(ctx, budget, client.RawPatch(types.MergePatchType, []byte(build.EvictOne))))
	}
	if err != nil || set.Spec.UpdateStrategy.RollingUpdate == nil || ptr.Deref(set.Spec.UpdateStrategy.RollingUpdate.Partition, 0) == 0 {
		return err
	}
	return client.IgnoreNotFound(r.Patch(ctx, set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(build.NoPartition))))
}

// partition is the ordinal below which members keep their template. If members step out first, and this write
// changes their template, no member restarts by itself.
func partition(a action.ApplyStatefulSet, d *templateDecision) int32 {
	if a.Steps && d.changes {
		return a.Replicas
	}
	return a.Partition
}

// variant is a number of its own for each pair of size and partition.
func variant(a action.ApplyStatefulSet) int32 {
	return a.Replicas + a.Partition*(cachev1alpha1.MaxSize+1)
}
