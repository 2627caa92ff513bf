package observe

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// View is the state that was read live, right before a step that can't be undone.
type View struct {
	plan.Observed
	// Found are the claims, including those that the cache can't see.
	Found *read.LiveClaims
	// Unlabelled are Jobs of the cluster that lack its label.
	Unlabelled []client.Object
	// jobs are the cluster's Jobs, and all pods with its labels.
	jobs read.Jobs
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
		if members, err = read.Get[appsv1.StatefulSet](ctx, r.Live, client.ObjectKeyFromObject(cluster)); err != nil {
			return nil, err
		}
	}
	if members != nil && !identity.OwnsOrAdopts(cluster, members) {
		members = nil
	}
	v := &View{Observed: plan.Observed{Facts: claims.Facts{Now: r.Clock.Now()}, Cluster: planSpec(cluster), StatefulSet: planStatefulSet(members)}}
	v.Obstructed = r.Obstructed.Known(client.ObjectKeyFromObject(cluster), v.Now)
	v.Found = &read.LiveClaims{}
	if !v.Cluster.InPods {
		if v.Found, err = r.For(cluster).LiveClaims(ctx); err != nil {
			return nil, err
		}
		v.Claims = v.Found.Claims
	}
	if !known.NoJobs || v.Cluster.InPods {
		if err := r.readJobs(ctx, cluster, v); err != nil {
			return nil, err
		}
	}
	pods := slices.DeleteFunc(slices.Clone(v.jobs.Pods), func(p corev1.Pod) bool { return !identity.MemberPod(cluster, members, &p) })
	v.Ready, v.LastReady, v.Away = readiness(cluster.Name, pods, v.StatefulSet.Replicas, func(member int32) time.Time {
		return r.Missing.Since(client.ObjectKeyFromObject(cluster), member, v.Now)
	})
	if v.Cluster.InPods {
		v.Claims = holders(cluster.Name, pods)
	}
	v.Drainers = drainers(v.jobs.Drainers(), nil, v.Now)
	var table *corev1.ConfigMap
	if cluster.Spec.Router != nil {
		if table, err = read.Get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: build.RouterName(cluster.Name)}); err != nil {
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
	return v, r.readJobs(ctx, cluster, v)
}

// readJobs reads the cluster's drains and moves, with the receipts in their own pods.
func (r *Reader) readJobs(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View) error {
	reader := r.For(cluster)
	jobs, err := reader.LiveJobs(ctx)
	if err != nil {
		return err
	}
	v.jobs, v.Unlabelled = *jobs, jobs.Unlabelled
	for i := range jobs.Jobs {
		switch job := reader.Job(&jobs.Jobs[i], jobs.Pods); {
		case ring.IsWarm(job.Target):
			v.Warms = append(v.Warms, job)
		case job.Target != "":
			v.Moves = append(v.Moves, job)
		default:
			v.Jobs = append(v.Jobs, job)
		}
	}
	return nil
}

// LookForMembers looks for the claims of the members below replicas by their names, because the StatefulSet uses
// claims with these names and any labels. LookForMembers returns an error if another owner controls one.
func (r *Reader) LookForMembers(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, replicas int32) error {
	if v.Cluster.InPods {
		return nil
	}
	var names []string
	for ; v.members < replicas; v.members++ {
		names = append(names, build.ClaimName(cluster.Name, v.members))
	}
	if err := r.For(cluster).LookFor(ctx, v.Found, names...); err != nil {
		return err
	}
	v.Claims = v.Found.Claims
	for i := range v.Found.Others {
		if c := &v.Found.Others[i]; MemberOrdinal(cluster.Name, c) < max(replicas, v.StatefulSet.Replicas) {
			return OwnerOf(cluster).NameTaken(c)
		}
	}
	return nil
}

// WithUsers returns the view with the pods that use the claim's volume.
func (r *Reader) WithUsers(ctx context.Context, cluster *cachev1alpha1.Memcached, v *View, claim action.ClaimRef) (*plan.Observed, error) {
	with := v.Observed
	member, others, err := r.For(cluster).Users(ctx, v.jobs.Pods, claim)
	if member {
		with.Pods = append(with.Pods, claim.Ordinal)
	}
	for range others {
		with.ClaimsWithDrainerPod = append(with.ClaimsWithDrainerPod, claim.UID)
	}
	return &with, err
}

// readList reads the clients' list; nil if there is none, or if it belongs to another owner.
func (r *Reader) readList(ctx context.Context, cluster *cachev1alpha1.Memcached) (*corev1.ConfigMap, error) {
	list, err := read.Get[corev1.ConfigMap](ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: build.ServersName(cluster.Name)})
	if err != nil || list == nil || !identity.OwnsOrAdopts(cluster, list) {
		return nil, err
	}
	return list, nil
}
