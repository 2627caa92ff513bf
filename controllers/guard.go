package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
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

// labelled selects the cluster's objects, live, of one component or of all.
func labelled(o *observed, component string) []client.ListOption {
	labels := client.MatchingLabels{
		cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy,
		cachev1alpha1.LabelInstance:  o.cluster.Name,
	}
	if component != "" {
		labels[cachev1alpha1.LabelComponent] = component
	}
	return []client.ListOption{client.InNamespace(o.cluster.Namespace), labels}
}

// refused makes a refusal of what a check of the plan found, nil of nothing.
func refused(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errRefused, why)
}

// maySetReplicas asks plan.MaySetReplicas. It tells whether the size is set
// already: then the cache is behind, and its event is next.
func (r *MemcachedReconciler) maySetReplicas(ctx context.Context, o *observed, replicas int32) (behind bool, err error) {
	members, err := get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(o.cluster))
	if err != nil {
		return false, err
	}
	if members != nil && ptr.Deref(members.Spec.Replicas, 1) == replicas {
		return true, nil
	}
	live := plan.Observed{StatefulSet: planStatefulSet(members)}
	if err := r.liveMoves(ctx, o, &live); err != nil {
		return false, err
	}
	if live.Claims, err = r.liveClaims(ctx, o); err != nil {
		return false, err
	}
	return false, refused(plan.MaySetReplicas(&live, replicas))
}

// mayMark asks plan.MayMark, on what was read once for all marks of a reconcile.
func (r *MemcachedReconciler) mayMark(ctx context.Context, o *observed, claim plan.ClaimRef) (err error) {
	if o.moves == nil {
		if o.moves, err = r.liveMove(ctx, o); err != nil {
			return err
		}
	}
	return refused(plan.MayMark(o.moves, claim.Ordinal))
}

// liveMove reads what a Job that moves items depends on.
func (r *MemcachedReconciler) liveMove(ctx context.Context, o *observed) (*plan.Observed, error) {
	members, err := get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(o.cluster))
	if err != nil {
		return nil, err
	}
	live := &plan.Observed{Cluster: planCluster(o), StatefulSet: planStatefulSet(members)}
	if live.Claims, err = r.liveClaims(ctx, o); err != nil {
		return nil, err
	}
	return live, r.liveMoves(ctx, o, live)
}

// liveMoves fills in what moves items, and where clients look.
func (r *MemcachedReconciler) liveMoves(ctx context.Context, o *observed, live *plan.Observed) (err error) {
	if live.Jobs, live.Placements, err = r.liveJobs(ctx, o, nil); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, labelled(o, cachev1alpha1.ComponentPlacement)...); err != nil {
		return err
	}
	live.Movers = movers(pods.Items)
	list, err := r.liveList(ctx, o)
	if err != nil || list == nil {
		return err
	}
	now := observed{cluster: o.cluster, serverList: list, claims: o.claims}
	live.Placement = planPlacement(o.cluster, now.recorded())
	return nil
}

// liveList reads the clients' list; nil where there is none, or somebody else's.
func (r *MemcachedReconciler) liveList(ctx context.Context, o *observed) (*corev1.ConfigMap, error) {
	list, err := get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: o.cluster.Namespace, Name: build.ServersName(o.cluster.Name)})
	if err != nil || list == nil || list.Labels[cachev1alpha1.LabelManagedBy] != cachev1alpha1.ManagedBy {
		return nil, err
	}
	return list, nil
}

// refreshList reads the clients' list live before it is written: a ring's number must
// not be given away twice, nor a ring pass by whose items were to be placed; and
// clients are not told of a member that can't be.
func (r *MemcachedReconciler) refreshList(ctx context.Context, o *observed, a plan.ApplyMembers) error {
	if o.serverList == nil ||
		o.serverList.Annotations[cachev1alpha1.AnnotationRing] == o.record.String() && named(o.serverList) == len(o.servers) {
		return nil
	}
	if _, err := r.maySetReplicas(ctx, o, a.Replicas); err != nil {
		return err
	}
	list, err := r.liveList(ctx, o)
	if err != nil {
		return err
	}
	cached, record := o.recorded(), o.record
	o.serverList = list
	if now := o.recorded(); list != nil && now != cached && now != record {
		return refuse("the clients' list is another one than the cache has")
	}
	o.nextList(a.Listed)
	return nil
}

// mayPlace asks plan.MayPlace.
func (r *MemcachedReconciler) mayPlace(ctx context.Context, o *observed, a plan.CreatePlacement) error {
	live, err := r.liveMove(ctx, o)
	if err != nil {
		return err
	}
	return refused(plan.MayPlace(live, a))
}

// mayDrain asks plan.MayDrain.
func (r *MemcachedReconciler) mayDrain(ctx context.Context, o *observed, a plan.CreateDrain) error {
	live, err := r.liveMove(ctx, o)
	if err != nil {
		return err
	}
	if err := r.liveUsers(ctx, o, a.Claim, live); err != nil {
		return err
	}
	return refused(plan.MayDrain(live, a))
}

// liveClaims are the claims of the cluster's members, present and past.
func (r *MemcachedReconciler) liveClaims(ctx context.Context, o *observed) ([]plan.Claim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &list, labelled(o, cachev1alpha1.ComponentMember)...); err != nil {
		return nil, err
	}
	var claims []plan.Claim
	for i := range list.Items {
		if c, ok := planClaim(o.cluster.Name, &list.Items[i]); ok {
			claims = append(claims, c)
		}
	}
	return claims, nil
}

// liveJobs are the cluster's drains and placements, with the receipts of those of
// the pods that are theirs.
func (r *MemcachedReconciler) liveJobs(ctx context.Context, o *observed, pods []corev1.Pod) (drains, placements []plan.Job, err error) {
	var list batchv1.JobList
	if err := r.Live.List(ctx, &list, labelled(o, "")...); err != nil {
		return nil, nil, err
	}
	for i := range list.Items {
		job := planJob(&list.Items[i], pods)
		if places(&list.Items[i]) {
			placements = append(placements, job)
		} else {
			drains = append(drains, job)
		}
	}
	return drains, placements, nil
}

// liveUsers fills in who uses the volume: the member's pod, whatever its labels
// are by now, and all pods that carry ours, members and drainers.
func (r *MemcachedReconciler) liveUsers(ctx context.Context, o *observed, claim plan.ClaimRef, live *plan.Observed) error {
	key := client.ObjectKey{Namespace: o.cluster.Namespace, Name: build.PodName(o.cluster.Name, claim.Ordinal)}
	member, err := get[corev1.Pod](ctx, r.Live, key)
	if err != nil {
		return err
	}
	if member != nil {
		live.Pods = append(live.Pods, claim.Ordinal)
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
				live.DrainerPods = append(live.DrainerPods, claim.UID)
			}
		}
	}
	return nil
}

// mayRelease asks plan.MayRelease about the live claim.
func (r *MemcachedReconciler) mayRelease(ctx context.Context, o *observed, claim *corev1.PersistentVolumeClaim, why plan.Release) error {
	c, ours := planClaim(o.cluster.Name, claim)
	if !ours {
		return refuse("claim %s is no member's", claim.Name)
	}
	if why == plan.BySetAside {
		claims, err := r.liveClaims(ctx, o)
		if err != nil {
			return err
		}
		return refused(plan.MayHandOver(&plan.Observed{Claims: claims}, &c))
	}
	live, err := r.liveCluster(ctx, o, why)
	if err != nil {
		return err
	}
	if err := plan.MayRelease(&live, &c, why); err != nil || why != plan.ByUnrecoverable {
		return refused(err)
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, labelled(o, cachev1alpha1.ComponentDrainer)...); err != nil {
		return err
	}
	jobs, _, err := r.liveJobs(ctx, o, pods.Items)
	if err != nil {
		return err
	}
	return refused(plan.MayGiveUp(&plan.Observed{Jobs: jobs}, &c))
}

// liveCluster reads what the reason for a release is about, if that is not on
// the claim.
func (r *MemcachedReconciler) liveCluster(ctx context.Context, o *observed, why plan.Release) (plan.Cluster, error) {
	switch why {
	case plan.ByReceipt, plan.BySkip, plan.NeverBound:
		return plan.Cluster{}, nil
	case plan.ByNamespace:
		terminates, err := namespaceTerminates(ctx, r.Live, o.cluster.Namespace)
		return plan.Cluster{NamespaceTerminating: terminates}, err
	}
	cluster, err := get[cachev1alpha1.Memcached](ctx, r.Live, client.ObjectKeyFromObject(o.cluster))
	if err != nil {
		return plan.Cluster{}, err
	}
	// Where there was none, one that is there now is a successor: it keeps what
	// it finds.
	gone := cluster == nil || cluster.DeletionTimestamp != nil || !o.absent && cluster.UID != o.cluster.UID
	if gone {
		return plan.Cluster{Deleting: true}, nil
	}
	return plan.Cluster{Policy: planPolicy(cluster), ReleaseUnreadable: releasesUnreadable(cluster)}, nil
}

// nothingHeld asks plan.NothingHeld.
func (r *MemcachedReconciler) nothingHeld(ctx context.Context, o *observed) error {
	claims, err := r.liveClaims(ctx, o)
	if err != nil {
		return err
	}
	return refused(plan.NothingHeld(&plan.Observed{Claims: claims}))
}
