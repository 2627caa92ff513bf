package observe

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
)

// LiveSize is the size of a cluster whose spec has none: how many members without a leaving mark it
// has now, and 1 if it has none yet. A person leaves the size out to hand it to an autoscaler,
// which must not change the size.
func (r *Reader) LiveSize(ctx context.Context, cluster *cachev1alpha1.Memcached) (int32, error) {
	key := client.ObjectKeyFromObject(cluster)
	if cluster.Spec.Storage == nil {
		d, err := read.Get[appsv1.Deployment](ctx, r.Live, key)
		if err != nil || d == nil || !identity.OwnsOrAdopts(cluster, d) {
			return 1, err
		}
		return bounded(ptr.Deref(d.Spec.Replicas, 1)), nil
	}
	set, err := read.Get[appsv1.StatefulSet](ctx, r.Live, key)
	if err != nil {
		return 0, err
	}
	all, err := r.allHolders(ctx, cluster)
	if err != nil {
		return 0, err
	}
	stays, leaves := map[int32]bool{}, map[int32]bool{}
	for i := range all {
		if c := &all[i]; !c.Aside {
			stays[c.Ordinal], leaves[c.Ordinal] = c.LeavingSince.IsZero(), !c.LeavingSince.IsZero()
		}
	}
	if set == nil || !identity.OwnsOrAdopts(cluster, set) { // the StatefulSet was deleted, but its members' claims exist
		n := int32(0)
		for n < cachev1alpha1.MaxSize && stays[n] {
			n++
		}
		return max(1, n), nil
	}
	n := bounded(ptr.Deref(set.Spec.Replicas, 1))
	for n > 1 && leaves[n-1] {
		n--
	}
	return n, nil
}

// allHolders returns the cluster's claims or, without volumes, its members' pods, from the cache.
func (r *Reader) allHolders(ctx context.Context, cluster *cachev1alpha1.Memcached) (all []claims.Claim, err error) {
	key := client.ObjectKeyFromObject(cluster)
	if cluster.Spec.InPods() {
		var pods corev1.PodList
		err = r.list(ctx, key, &pods)
		return holders(cluster.Name, slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return !identity.MemberPod(cluster, nil, &p) })), err
	}
	var list corev1.PersistentVolumeClaimList
	err = r.list(ctx, key, &list)
	for i := range list.Items {
		if c, ours := PlanClaim(cluster.Name, &list.Items[i]); ours {
			all = append(all, c)
		}
	}
	return all, err
}

func bounded(size int32) int32 { return min(max(0, size), cachev1alpha1.MaxSize) }
