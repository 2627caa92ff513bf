package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
)

// View is the state that was read live, right before a step that can't be undone.
type View struct {
	plan.Observed
	// Found are the claims, including those that the cache can't see.
	Found *LiveClaims
	// Unlabelled are Jobs of the cluster that lack its label.
	Unlabelled []client.Object
	// pods have the cluster's labels.
	pods []corev1.Pod
	// foreign has the UIDs of Jobs that are not the cluster's, but have pods with its labels.
	foreign map[types.UID]bool
	// seen has the UIDs of all Jobs that were read.
	seen map[types.UID]bool
	// members is the number of members whose claims were looked for by name: the ordinals below it.
	members int32
}

// View reads live the state that steps that can't be undone depend on. cluster is the Memcached
// that the plan was made for.
func (r *Reader) View(ctx context.Context, cluster *cachev1alpha1.Memcached) (*View, error) {
	return r.ViewBefore(ctx, cluster, Known{})
}

// Known is the knowledge that makes live reads unnecessary.
type Known struct {
	// NoStatefulSet: the step fails if the StatefulSet exists.
	NoStatefulSet bool
	// NoJobs: the operator has created no Jobs yet for this Memcached.
	NoJobs bool
	// List is the clients' list that was created just now, or nil. Locked is the present list if
	// the step fails unless this is its latest version.
	List   *action.WriteList
	Locked *corev1.ConfigMap
}

// ViewBefore is View without the reads that known makes unnecessary.
func (r *Reader) ViewBefore(ctx context.Context, cluster *cachev1alpha1.Memcached, known Known) (*View, error) {
	var members *appsv1.StatefulSet
	var err error
	if !known.NoStatefulSet {
		if members, err = Get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(cluster)); err != nil {
			return nil, err
		}
	}
	if members != nil && !identity.OwnsOrAdopts(cluster, members) {
		members = nil
	}
	v := &View{Observed: plan.Observed{Facts: claims.Facts{Now: r.Clock.Now()}, Cluster: planSpec(cluster), StatefulSet: planStatefulSet(members)}}
	v.Obstructed = planObstructed(r.Obstructed.Known(client.ObjectKeyFromObject(cluster), v.Now))
	if v.Found, err = r.LiveClaims(ctx, cluster); err != nil {
		return nil, err
	}
	v.Claims = v.Found.Claims
	if !known.NoJobs {
		if err := r.readJobsAndPods(ctx, cluster, v); err != nil {
			return nil, err
		}
	}
	v.Ready, v.LastReady, v.Away = readiness(cluster.Name, slices.DeleteFunc(slices.Clone(v.pods), func(p corev1.Pod) bool {
		return !identity.MemberPod(cluster, members, &p)
	}), v.StatefulSet.Replicas)
	v.Drainers = drainers(slices.DeleteFunc(slices.Clone(v.pods), func(p corev1.Pod) bool {
		return !identity.DrainerPod(&p) || v.foreign[metav1.GetControllerOfNoCopy(&p).UID]
	}), nil, v.Now)
	var table *corev1.ConfigMap
	if cluster.Spec.Router != nil {
		if table, err = Get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: build.RouterName(cluster.Name)}); err != nil {
			return nil, err
		}
	}
	if known.List != nil {
		v.ListSize, v.Record = known.List.ListSize, known.List.Record
	} else if err := r.viewList(ctx, cluster, v, known.Locked); err != nil {
		return nil, err
	}
	told := r.told(cluster, table, v.Now)
	v.Table = planTable(cluster, &v.Observed, told, r.toldSince(cluster, told, v.Now), true) // the plan has checked whether they have acknowledged the table
	return v, nil
}

func (r *Reader) viewList(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, list *corev1.ConfigMap) error {
	var err error
	if list == nil {
		list, err = r.readList(ctx, cluster)
	}
	if err == nil && list != nil {
		v.ReadList(PlanList(list), statusListSize(cluster))
	}
	return err
}

// LiveJobs reads only the cluster's Jobs and how they ended.
func (r *Reader) LiveJobs(ctx context.Context, cluster *cachev1alpha1.Memcached) (*View, error) {
	v := &View{}
	return v, r.readJobsAndPods(ctx, cluster, v)
}

// readJobsAndPods reads the pods first, because a Job that a sidecar keeps running has ended if its
// drainer has.
func (r *Reader) readJobsAndPods(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View) error {
	if err := r.readPods(ctx, cluster, v); err != nil {
		return err
	}
	return r.readJobs(ctx, cluster, v)
}

// LookForMembers looks for the claims of the members below replicas by their names, because the
// StatefulSet uses claims with these names and any labels. It returns an error if another owner
// controls one.
func (r *Reader) LookForMembers(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, replicas int32) error {
	var names []string
	for ; v.members < replicas; v.members++ {
		names = append(names, build.ClaimName(cluster.Name, v.members))
	}
	if err := r.lookFor(ctx, cluster, v.Found, names); err != nil {
		return err
	}
	v.Claims = v.Found.Claims
	for i := range v.Found.Others {
		if c := &v.Found.Others[i]; MemberOrdinal(cluster.Name, c) < max(replicas, v.StatefulSet.Replicas) {
			return identity.NameTaken(c)
		}
	}
	return nil
}

// LiveClaim reads the claim; nil if it is gone, or if another claim has its name.
func (r *Reader) LiveClaim(ctx context.Context, namespace string, ref action.ClaimRef) (*corev1.PersistentVolumeClaim, error) {
	claim, err := Get[corev1.PersistentVolumeClaim](ctx, r.Live, client.ObjectKey{Namespace: namespace, Name: ref.Name})
	if err != nil || claim == nil || claim.UID != ref.UID {
		return nil, err
	}
	return claim, nil
}

// WithUsers returns the view with the pods that use the claim's volume: the pod with the member's
// name, even without its labels, and all pods with our labels. A pod that has ended uses no volume.
func (r *Reader) WithUsers(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, claim action.ClaimRef) (*plan.Observed, error) {
	with := v.Observed
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: build.PodName(cluster.Name, claim.Ordinal)}
	member, err := Get[corev1.Pod](ctx, r.Live, key)
	if err != nil {
		return nil, err
	}
	if member != nil && uses(member, claim.Name) {
		with.Pods = append(with.Pods, claim.Ordinal)
	}
	for i := range v.pods {
		if uses(&v.pods[i], claim.Name) {
			with.ClaimsWithDrainerPod = append(with.ClaimsWithDrainerPod, claim.UID)
		}
	}
	return &with, nil
}

// readPods reads the cluster's pods.
func (r *Reader) readPods(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View) error {
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(cluster.Namespace), client.MatchingLabelsSelector{Selector: identity.Selector(&corev1.Pod{})},
		client.MatchingLabels{cachev1alpha1.LabelInstance: cluster.Name})
	if err != nil {
		return fmt.Errorf("list the pods of Memcached %s: %w", cluster.Name, err)
	}
	v.pods = pods.Items
	return nil
}

// readList reads the clients' list; nil if there is none, or if it belongs to another owner.
func (r *Reader) readList(ctx context.Context, cluster *cachev1alpha1.Memcached) (*corev1.ConfigMap, error) {
	list, err := Get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: build.ServersName(cluster.Name)})
	if err != nil || list == nil || !identity.OwnsOrAdopts(cluster, list) {
		return nil, err
	}
	return list, nil
}

// readJobs reads the cluster's drains and moves, with the receipts in their own pods: the Jobs with
// its label and, by their names, those that the cache has and those that the pods name, because a
// Job that lost its label still runs.
func (r *Reader) readJobs(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View) error {
	v.foreign, v.seen = map[types.UID]bool{}, map[types.UID]bool{}
	list, there := &batchv1.JobList{}, map[string]bool{}
	each := func() {
		for i := range list.Items {
			there[list.Items[i].Name] = true
			v.addJob(cluster, &list.Items[i])
		}
	}
	if err := r.labelled(ctx, list, cluster, each); err != nil {
		return fmt.Errorf("list the Jobs of Memcached %s: %w", cluster.Name, err)
	}
	names, err := r.knownNames(ctx, cluster, &batchv1.JobList{}, kindJobs)
	if err != nil {
		return err
	}
	unknown := slices.DeleteFunc(slices.Clone(v.pods), func(p corev1.Pod) bool {
		return !identity.DrainerPod(&p) || v.seen[metav1.GetControllerOfNoCopy(&p).UID]
	})
	for i := range unknown {
		names = append(names, metav1.GetControllerOfNoCopy(&unknown[i]).Name)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return there[name] })
	return r.readByName(ctx, cluster, v, names)
}

// readByName reads the Jobs with these names.
func (r *Reader) readByName(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, names []string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > mostByName {
		list := &batchv1.JobList{}
		err := eachPage(ctx, r.Live, list, func() {
			for i := range list.Items {
				if at := slices.Index(names, list.Items[i].Name); at >= 0 {
					v.addJob(cluster, &list.Items[i])
					names = slices.Delete(names, at, at+1)
				}
			}
		}, client.InNamespace(cluster.Namespace))
		if err != nil {
			return fmt.Errorf("list the Jobs of the namespace: %w", err)
		}
		r.gone(cluster, kindJobs, names...)
		return nil
	}
	for _, name := range names {
		job, err := Get[batchv1.Job](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name})
		if err != nil {
			return fmt.Errorf("get Job %s: %w", name, err)
		}
		if job == nil {
			r.gone(cluster, kindJobs, name)
			continue
		}
		v.addJob(cluster, job)
	}
	return nil
}

// addJob adds a Job, with what its pods report, unless it was read before.
func (v *View) addJob(cluster *cachev1alpha1.Memcached, job *batchv1.Job) {
	if v.seen[job.UID] {
		return
	}
	v.seen[job.UID] = true
	switch {
	case !identity.OwnJob(cluster, job):
		v.foreign[job.UID] = true
		return
	case gone(job, v.pods):
		return
	case identity.Moves(job):
		v.Moves = append(v.Moves, PlanJob(job, v.pods))
	default:
		v.Jobs = append(v.Jobs, PlanJob(job, v.pods))
	}
	if job.Labels[cachev1alpha1.LabelCluster] != cluster.Name {
		v.Unlabelled = append(v.Unlabelled, job.DeepCopy())
	}
}

func uses(pod *corev1.Pod, claim string) bool {
	return !podEnded(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
