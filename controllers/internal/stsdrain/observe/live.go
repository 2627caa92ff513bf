package observe

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// Live is a live read before a step that can't be undone.
type Live struct {
	stsdrain.Observed
	StatefulSet *appsv1.StatefulSet
}

// LiveStatefulSet reads the StatefulSet, and StatefulSetDrain, live. now is nil if the StatefulSetDrain is gone, or is
// another one.
func (r *Reader) LiveStatefulSet(ctx context.Context, d *cachev1alpha1.StatefulSetDrain) (set *appsv1.StatefulSet, now *cachev1alpha1.StatefulSetDrain, err error) {
	now, err = read.Get[cachev1alpha1.StatefulSetDrain](ctx, r.Live, client.ObjectKeyFromObject(d))
	if err != nil {
		return nil, nil, err
	}
	if now != nil && now.UID != d.UID {
		now = nil
	}
	set, err = read.Get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.StatefulSetName})
	return set, now, err
}

// View reads everything live that a plan depends on: the StatefulSet and its pods, claims, Jobs.
func (r *Reader) View(ctx context.Context, d *cachev1alpha1.StatefulSetDrain, refused string) (*Live, error) {
	is, now, err := r.LiveStatefulSet(ctx, d)
	if err != nil {
		return nil, err
	}
	v := &Live{StatefulSet: is}
	v.Now = r.Clock.Now()
	if now == nil {
		now = d.DeepCopy()
		v.Drain = wants(now)
		v.Drain.Deleting = true
	} else {
		v.Drain = wants(now)
	}
	v.Drain.TemplateRefused = refused
	v.Set = set(d, is)
	reader := r.For(now, is)
	found, err := reader.LiveClaims(ctx)
	if err != nil {
		return nil, err
	}
	v.Claims = found.Claims
	jobs, err := reader.LiveJobs(ctx)
	if err != nil {
		return nil, err
	}
	v.Jobs, v.Drainers, v.ClaimsWithDrainerPod, v.ClaimsWithDrainerAtWork = facts(now, reader.Owner, jobs)
	if is != nil {
		pods, err := r.liveMembers(ctx, d, is)
		if err != nil {
			return nil, err
		}
		v.Pods, v.Ready = Ordinals(is.Name, is, pods)
	}
	v.Obstructed = r.Obstructed.Known(client.ObjectKeyFromObject(d), v.Now)
	v.Others, err = others(ctx, r.Live, d)
	return v, err
}

// liveMembers reads the pods of the StatefulSet's selector.
func (r *Reader) liveMembers(ctx context.Context, d *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("the selector of StatefulSet %s: %w", set.Name, err)
	}
	var list corev1.PodList
	if err := r.Live.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the pods of StatefulSet %s: %w", set.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// MemberUses tells whether a pod with the member's name exists, with any labels, or one of the selector
// mounts the claim.
func (r *Reader) MemberUses(ctx context.Context, d *cachev1alpha1.StatefulSetDrain, v *Live, c *claims.Claim) (bool, error) {
	pod, err := read.Get[corev1.Pod](ctx, r.Live, client.ObjectKey{Namespace: d.Namespace, Name: stsdrain.PodName(d.Spec.StatefulSetName, c.Ordinal)})
	return pod != nil || v.PodExists(c.Ordinal), err
}
