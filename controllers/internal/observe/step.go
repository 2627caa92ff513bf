package observe

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// observeStep asks the member that is out of the ring whether it has started empty.
func (r *Reader) observeStep(key client.ObjectKey, o *State) {
	if r.Steps == nil {
		return
	}
	for i := range o.Pods {
		p := &o.Pods[i]
		if ordinal, is := build.PodOrdinal(o.Cluster.Name, p.Name); is && p.DeletionTimestamp == nil && contract.StepsAside(p.Annotations[cachev1alpha1.AnnotationStepOut]) {
			o.Aside = append(o.Aside, ordinal)
		}
	}
	list := PlanList(o.ServerList)
	if list == nil || list.Record == nil || list.Record.Ring.Out == 0 || o.Cluster.DeletionTimestamp != nil {
		r.Steps.Forget(key)
		return
	}
	member := list.Record.Ring.Out - 1
	for i := range o.Pods {
		p := &o.Pods[i]
		if p.Name != build.PodName(o.Cluster.Name, member) || p.DeletionTimestamp != nil || p.Status.PodIP == "" {
			continue
		}
		empty, aside := r.Steps.StartedEmpty(key, build.AskedAt(p, build.ProbePort(o.Cluster)), list.Record.Serial, p)
		if empty {
			o.Empty = []int32{member}
		}
		if aside && !slices.Contains(o.Aside, member) { // the kubelet is late
			o.Aside = append(o.Aside, member)
		}
		return
	}
	r.Steps.Forget(key)
}

// observeNodes finds out which members are on nodes that take no pods.
func (r *Reader) observeNodes(key client.ObjectKey, o *State) {
	if !build.StepsOutForEvictions(o.Cluster) || o.Cluster.DeletionTimestamp != nil {
		r.Nodes.Forget(key)
		return
	}
	on := map[int32]string{}
	for i := range o.Pods {
		p := &o.Pods[i]
		if ordinal, is := build.PodOrdinal(o.Cluster.Name, p.Name); is && p.DeletionTimestamp == nil && p.Spec.NodeName != "" {
			on[ordinal] = p.Spec.NodeName
		}
	}
	var since map[string]time.Time
	since, o.NodesPending, o.NodesUnknown = r.Nodes.Cordoned(key, slices.Collect(maps.Values(on)))
	for _, ordinal := range slices.Sorted(maps.Keys(on)) {
		if t, is := since[on[ordinal]]; is {
			o.Cordoned = append(o.Cordoned, plan.Cordoned{Ordinal: ordinal, Node: on[ordinal], Since: t})
		}
	}
}

// seesTemplate tells whether Kubernetes has seen the present template, and which members don't have it. A member
// without a pod counts while members are replaced: its next pod may have either template.
func seesTemplate(cluster string, pods []corev1.Pod, s *appsv1.StatefulSet) (seen bool, outdated []int32) {
	if s == nil {
		return false, nil
	}
	revisions := map[int32]string{}
	for i := range pods {
		if ordinal, is := build.PodOrdinal(cluster, pods[i].Name); is {
			revisions[ordinal] = pods[i].Labels[appsv1.StatefulSetRevisionLabel]
		}
	}
	for i := range min(ptr.Deref(s.Spec.Replicas, 1), cachev1alpha1.MaxSize) {
		has, is := revisions[i]
		if is && has != s.Status.UpdateRevision || !is && s.Status.UpdateRevision != s.Status.CurrentRevision {
			outdated = append(outdated, i)
		}
	}
	return s.Status.ObservedGeneration == s.Generation && s.Status.UpdateRevision != "", outdated
}

// tellable are the members whose supervisors can be told to start empty.
func tellable(cluster string, pods []corev1.Pod) (members []int32) {
	for i := range pods {
		if ordinal, is := build.PodOrdinal(cluster, pods[i].Name); is && build.Tellable(&pods[i]) {
			members = append(members, ordinal)
		}
	}
	return members
}

// partitionOf is the ordinal below which members keep their template.
func partitionOf(s *appsv1.StatefulSet) int32 {
	if s.Spec.UpdateStrategy.RollingUpdate == nil {
		return 0
	}
	return ptr.Deref(s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
}

// observeStepRoom asks the members how full they are when a member is about to step out.
func (r *Reader) observeStepRoom(ctx context.Context, o *State, in *plan.Observed) (asks bool) {
	if !build.Moved(o.Cluster) || Paused(o.Cluster) || build.Secured(o.Cluster) {
		return false
	}
	member, is := in.StepBegins()
	if !is {
		return false
	}
	o.StepRoom = r.roomOf(ctx, o, in, in.Record.Ring.Without(member))
	return true
}
