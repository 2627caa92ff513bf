package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
)

// errRefused means that what the plan saw in the cache is not true any more. It
// is no failure: the next reconcile, on the event that the cache still lacks or
// some time later, sees more. One that holds for long shows in status.
var errRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRefused, fmt.Sprintf(format, args...))
}

// liveClaim reads the claim from the API server; nil where it is gone, or where
// another claim has taken its name.
func (r *MemcachedReconciler) liveClaim(ctx context.Context, cluster *cachev1alpha1.Memcached, ref plan.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := get[corev1.PersistentVolumeClaim](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name})
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
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
func (r *applier) maySetReplicas(ctx context.Context, replicas int32) (behind bool, err error) {
	live, err := r.live(ctx)
	if err != nil {
		return false, err
	}
	if live.StatefulSet.Exists && live.StatefulSet.Replicas == replicas {
		return true, nil
	}
	if err := live.taken(r.cluster.Name, replicas); err != nil {
		return false, err
	}
	return false, refused(plan.MaySetReplicas(&live.Observed, replicas))
}

// mayMark asks plan.MayMark, on what was read once for all marks of a reconcile.
func (r *applier) mayMark(ctx context.Context, claim plan.ClaimRef) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := live.taken(r.cluster.Name, 0); err != nil {
		return err
	}
	return refused(plan.MayMark(&live.Observed, claim.Ordinal))
}

// taken is the error if a member that there is, or is to be among so many, uses a claim
// that somebody else controls.
func (v *liveView) taken(cluster string, replicas int32) error {
	for i := range v.others {
		if c := &v.others[i]; memberOrdinal(cluster, c) < max(replicas, v.StatefulSet.Replicas) {
			return identity.Taken(c)
		}
	}
	return nil
}

// live is what was read from the API server in this reconcile, right before steps that
// can't be undone. It is read once for steps of the same kind, which add the Jobs that they
// create to it. After any other write it is read anew.
func (r *applier) live(ctx context.Context) (*liveView, error) {
	if r.view != nil {
		return r.view, nil
	}
	members, err := get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(r.cluster))
	if err != nil {
		return nil, err
	}
	if members != nil && !identity.Mine(r.cluster, members) {
		members = nil
	}
	// Who is lost is as the plan saw it: one that is back may leave all the same.
	seen := r.seen.input()
	v := &liveView{Observed: plan.Observed{
		Cluster: seen.Cluster, StatefulSet: planStatefulSet(members), Now: seen.Now, Ready: seen.Ready, Away: seen.Away,
	}}
	found, err := r.lookAtClaims(ctx, r.cluster)
	if err != nil {
		return nil, err
	}
	if err := r.adopt(ctx, r.cluster, found); err != nil {
		return nil, err
	}
	v.Claims, v.others = found.claims, found.others
	if err := r.liveJobs(ctx, r.cluster, r.seen.endedPods(), v); err != nil {
		return nil, err
	}
	for _, job := range v.unlabelled {
		if err := r.putLabel(ctx, job, r.cluster.Name); err != nil {
			return nil, err
		}
	}
	if err := r.livePods(ctx, r.cluster, v); err != nil {
		return nil, err
	}
	list, err := r.liveList(ctx)
	if err != nil {
		return nil, err
	}
	if list != nil {
		v.Look(look(list), told(r.cluster))
	}
	r.view = v
	return v, nil
}

// liveView is what a live read found.
type liveView struct {
	plan.Observed
	// pods that carry the cluster's labels.
	pods []corev1.Pod
	// others are claims of members' names that somebody else controls.
	others []corev1.PersistentVolumeClaim
	// unlabelled are Jobs of the cluster that have lost their label.
	unlabelled []client.Object
	// foreign are the UIDs of the namespace's Jobs that are not the cluster's.
	foreign map[types.UID]bool
}

// livePods are the cluster's pods, and of them the drainers that move items.
func (r *MemcachedReconciler) livePods(ctx context.Context, cluster *cachev1alpha1.Memcached, v *liveView) error {
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(cluster.Namespace), client.MatchingLabelsSelector{Selector: Selector(&corev1.Pod{})},
		client.MatchingLabels{cachev1alpha1.LabelInstance: cluster.Name})
	if err != nil {
		return fmt.Errorf("list the pods of Memcached %s: %w", cluster.Name, err)
	}
	v.pods = pods.Items
	v.Drainers = drainers(slices.DeleteFunc(slices.Clone(pods.Items), func(p corev1.Pod) bool {
		return !identity.DrainerPod(&p) || v.foreign[metav1.GetControllerOfNoCopy(&p).UID]
	}))
	return nil
}

// endedPods are those of the Jobs that have ended: what a receipt says doesn't change.
func (o *observed) endedPods() []corev1.Pod {
	var pods []corev1.Pod
	for _, job := range slices.Concat(o.jobs, o.placements) {
		if jobState(&job) == plan.JobActive {
			continue
		}
		for i := range o.drainerPods {
			if metav1.IsControlledBy(&o.drainerPods[i], &job) {
				pods = append(pods, o.drainerPods[i])
			}
		}
	}
	return pods
}

// liveList reads the clients' list; nil where there is none, or somebody else's.
func (r *applier) liveList(ctx context.Context) (*corev1.ConfigMap, error) {
	list, err := get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: build.ServersName(r.cluster.Name)})
	if err != nil || list == nil || !identity.Mine(r.cluster, list) {
		return nil, err
	}
	return list, nil
}

// mayWriteList asks plan.MayWriteList.
func (r *applier) mayWriteList(ctx context.Context, a plan.WriteList) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if set := live.StatefulSet; !set.Exists || set.Replicas != a.Replicas {
		if err := live.taken(r.cluster.Name, a.Replicas); err != nil {
			return err
		}
	}
	return refused(plan.MayWriteList(&live.Observed, a))
}

// mayPlace asks plan.MayPlace.
func (r *applier) mayPlace(ctx context.Context, a plan.CreatePlacement) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	return refused(plan.MayPlace(&live.Observed, a))
}

// mayDrain asks plan.MayDrain.
func (r *applier) mayDrain(ctx context.Context, a plan.CreateDrain) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	with := live.Observed
	if err := r.liveUsers(ctx, a.Claim, live, &with); err != nil {
		return err
	}
	return refused(plan.MayDrain(&with, a))
}

// liveJobs are the cluster's drains and placements, with the receipts of those of
// the pods that are theirs. All Jobs of the namespace are asked for, since one that lost
// its labels still runs.
func (r *MemcachedReconciler) liveJobs(ctx context.Context, cluster *cachev1alpha1.Memcached, pods []corev1.Pod, v *liveView) error {
	v.foreign = map[types.UID]bool{}
	list := &batchv1.JobList{}
	err := pages(ctx, r.Live, list, cluster.Namespace, func() error {
		for i := range list.Items {
			job := &list.Items[i]
			switch {
			case !identity.OwnJob(cluster, job):
				v.foreign[job.UID] = true
				continue
			case gone(job, pods):
				continue
			case identity.Places(job):
				v.Placements = append(v.Placements, planJob(job, pods))
			default:
				v.Jobs = append(v.Jobs, planJob(job, pods))
			}
			if job.Labels[cachev1alpha1.LabelCluster] != cluster.Name {
				v.unlabelled = append(v.unlabelled, job.DeepCopy())
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at the Jobs of the namespace: %w", err)
	}
	return nil
}

// liveUsers fills in who uses the volume: the member's pod, whatever its labels are by
// now, and all pods that carry ours, members and drainers.
func (r *applier) liveUsers(ctx context.Context, claim plan.ClaimRef, live *liveView, with *plan.Observed) error {
	key := client.ObjectKey{Namespace: r.cluster.Namespace, Name: build.PodName(r.cluster.Name, claim.Ordinal)}
	member, err := get[corev1.Pod](ctx, r.Live, key)
	if err != nil {
		return err
	}
	if member != nil && (identity.MemberPod(r.cluster, r.seen.statefulSet, member) || mounts(member, claim.Name)) {
		with.Pods = append(with.Pods, claim.Ordinal)
	}
	for i := range live.pods {
		if mounts(&live.pods[i], claim.Name) {
			with.DrainerPods = append(with.DrainerPods, claim.UID)
		}
	}
	return nil
}

func mounts(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// mayRelease asks plan.MayRelease about the live claim.
func (r *applier) mayRelease(ctx context.Context, claim *corev1.PersistentVolumeClaim, why plan.Release) error {
	c, ours := planClaim(r.cluster.Name, claim)
	if !ours {
		return refuse("claim %s is no member's", claim.Name)
	}
	if why == plan.BySetAside {
		found, err := r.lookAtClaims(ctx, r.cluster)
		if err != nil {
			return err
		}
		return refused(plan.MayHandOver(&plan.Observed{Claims: found.claims}, &c))
	}
	c.Where = r.seen.where[c.UID]
	live, err := r.liveCluster(ctx, why)
	if err != nil {
		return err
	}
	if err := plan.MayRelease(&live, &c, why); err != nil || why != plan.ByUnrecoverable {
		return refused(err)
	}
	pods := &liveView{}
	if err := r.livePods(ctx, r.cluster, pods); err != nil {
		return err
	}
	if err := r.liveJobs(ctx, r.cluster, pods.pods, pods); err != nil {
		return err
	}
	return refused(plan.MayGiveUp(&pods.Observed, &c))
}

// liveCluster reads what the reason for a release is about, if that is not on
// the claim.
func (r *applier) liveCluster(ctx context.Context, why plan.Release) (plan.Cluster, error) {
	switch why {
	case plan.ByReceipt, plan.BySkip, plan.NeverBound:
		return plan.Cluster{}, nil
	case plan.ByNamespace:
		terminates, err := namespaceTerminates(ctx, r.Live, r.cluster.Namespace)
		return plan.Cluster{NamespaceTerminating: terminates}, err
	}
	cluster, err := get[cachev1alpha1.Memcached](ctx, r.Live, client.ObjectKeyFromObject(r.cluster))
	if err != nil {
		return plan.Cluster{}, err
	}
	// Where there was none, one that is there now is a successor: it keeps what
	// it finds.
	gone := cluster == nil || cluster.DeletionTimestamp != nil || !r.seen.absent && cluster.UID != r.cluster.UID
	if gone {
		return plan.Cluster{Deleting: true}, nil
	}
	return plan.Cluster{Policy: planPolicy(cluster), ReleaseUnreadable: releasesUnreadable(cluster)}, nil
}

// nothingHeld asks plan.NothingHeld.
func (r *applier) nothingHeld(ctx context.Context) error {
	found, err := r.lookAtClaims(ctx, r.cluster)
	if err != nil {
		return err
	}
	if err := r.adopt(ctx, r.cluster, found); err != nil {
		return err // what it held before is let go when the cache has it
	}
	return refused(plan.NothingHeld(&plan.Observed{Claims: found.claims}))
}
