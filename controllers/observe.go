package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/controllers/internal/trim"
	"example.com/memcached-operator/drainer/contract"
)

// clusterIndex finds the cached objects of a cluster without a look at those of
// all others.
const clusterIndex = "cluster"

func indexByCluster(mgr ctrl.Manager) error {
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &batchv1.Job{}} {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), o, clusterIndex, func(o client.Object) []string { return identity.ClusterName(o) })
		if err != nil {
			return fmt.Errorf("index %T by cluster: %w", o, err)
		}
	}
	return nil
}

// observed is a cluster and all that belongs to it.
type observed struct {
	now     time.Time
	cluster *cachev1alpha1.Memcached
	// absent: there is no such Memcached, but claims that it left held.
	absent bool
	done   // what this reconcile has done about it

	namespaceTerminating bool

	statefulSet *appsv1.StatefulSet
	deployment  *appsv1.Deployment
	service     *corev1.Service
	// serverList, networkPolicy and budget are those of the cluster, or nil.
	serverList    *corev1.ConfigMap
	networkPolicy *networkingv1.NetworkPolicy
	budget        *policyv1.PodDisruptionBudget
	pods          []corev1.Pod // of the members
	drainerPods   []corev1.Pod // of drains and placements
	claims        []corev1.PersistentVolumeClaim
	// where has the places of the volumes that were looked at, by the claim's UID.
	where map[types.UID]plan.Where
	// jobs drain, placements move items between members.
	jobs, placements []batchv1.Job
	// endedJobs are those of which nothing is left but a finalizer of somebody else.
	endedJobs []batchv1.Job
	progress  map[types.UID]contract.Progress // by the claim's UID
	// unlabelled are objects of the cluster that the cache doesn't have, for want of
	// their label, and found has such claims; nil where nobody looked. unfound is why
	// claims of members that run are not among these.
	unlabelled []client.Object
	found      *liveClaims
	unfound    error
	// room of a scale-down that is about to begin, or nil.
	room *plan.Room
	// notCreated is a member's pod that Kubernetes can't make, and drainersNotCreated
	// are those of Jobs, by the claim's UID.
	notCreated         *status.NotCreated
	drainersNotCreated map[types.UID]status.Wait
	// refused is a step that this reconcile refused, or nil.
	refused *status.Refusal
	// waits is when to look again though no event may come.
	waits waits
}

// cluster returns the Memcached, or nil where nothing is left to do for it. One
// that is gone, but left claims behind that we hold (its finalizer was removed
// by force), is treated as deleted under the default policy.
func (r *MemcachedReconciler) cluster(ctx context.Context, key client.ObjectKey) (*cachev1alpha1.Memcached, error) {
	cluster := &cachev1alpha1.Memcached{}
	err := r.Get(ctx, key, cluster)
	if err == nil || !apierrors.IsNotFound(err) {
		cluster.Spec.Size = ptr.To(ptr.Deref(cluster.Spec.Size, 1))
		return cluster, err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.list(ctx, key, &claims); err != nil {
		return nil, err
	}
	held := slices.ContainsFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool {
		return identity.OwnClaim(key.Name, &c) && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer)
	})
	if !held {
		return nil, nil
	}
	if err := r.Live.Get(ctx, key, cluster); !apierrors.IsNotFound(err) {
		return nil, err // the cache will see it
	}
	cluster.Namespace, cluster.Name = key.Namespace, key.Name
	cluster.DeletionTimestamp = ptr.To(metav1.NewTime(r.Clock.Now()))
	cluster.Spec = cachev1alpha1.MemcachedSpec{Size: ptr.To[int32](0), Storage: &cachev1alpha1.StorageSpec{}}
	return cluster, nil
}

// list fills the list with the cluster's objects from the cache.
func (r *MemcachedReconciler) list(ctx context.Context, key client.ObjectKey, list client.ObjectList) error {
	return r.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{clusterIndex: key.Name})
}

// observe reads everything that belongs to the cluster, from the cache; live
// only what is read when an end is near.
func (r *MemcachedReconciler) observe(ctx context.Context, cluster *cachev1alpha1.Memcached) (*observed, error) {
	o := &observed{now: r.Clock.Now(), cluster: cluster, absent: cluster.UID == "", drainersNotCreated: map[types.UID]status.Wait{}}
	key := client.ObjectKeyFromObject(cluster)
	var err error
	if cluster.Spec.Storage != nil {
		o.statefulSet, err = surely[appsv1.StatefulSet](ctx, r, o, key.Name)
	} else {
		o.deployment, err = surely[appsv1.Deployment](ctx, r, o, key.Name)
	}
	if err != nil {
		return nil, err
	}
	if err := r.observeOwned(ctx, key, o); err != nil {
		return nil, err
	}
	if err := r.observePods(ctx, key, o); err != nil {
		return nil, err
	}
	if cluster.Spec.Storage == nil {
		return o, nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.list(ctx, key, &claims); err != nil {
		return nil, err
	}
	o.claims = slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !identity.OwnClaim(key.Name, &c) })
	if err := r.observeVolumes(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeJobs(ctx, key, o); err != nil {
		return nil, err
	}
	o.unfound = r.findClaims(ctx, o)
	r.observeCreation(ctx, o)
	if o.namespaceTerminating, err = r.namespaceTerminates(ctx, o); err != nil {
		return nil, err
	}
	r.observeRoom(o)
	if why, fresh := r.refusals.Last(cluster, r.Clock.Now(), growthInterval); fresh {
		o.growthRefused = why
	}
	return o, nil
}

// observeOwned reads what stands beside the members.
func (r *MemcachedReconciler) observeOwned(ctx context.Context, key client.ObjectKey, o *observed) error {
	var err error
	if o.service, err = own[corev1.Service](ctx, r, o.cluster, key.Name); err != nil {
		return err
	}
	list := build.ServersName(key.Name)
	if o.cluster.Spec.Storage != nil {
		o.serverList, err = surely[corev1.ConfigMap](ctx, r, o, list)
	} else {
		o.serverList, err = own[corev1.ConfigMap](ctx, r, o.cluster, list)
	}
	if err != nil {
		return err
	}
	if o.networkPolicy, err = own[networkingv1.NetworkPolicy](ctx, r, o.cluster, key.Name); err != nil {
		return err
	}
	o.budget, err = own[policyv1.PodDisruptionBudget](ctx, r, o.cluster, key.Name)
	return err
}

// get returns the object, or nil where there is none.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key client.ObjectKey) (P, error) {
	object := P(new(T))
	if err := c.Get(ctx, key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

func (r *MemcachedReconciler) observePods(ctx context.Context, key client.ObjectKey, o *observed) error {
	var pods corev1.PodList
	if err := r.list(ctx, key, &pods); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		switch pod.Labels[cachev1alpha1.LabelComponent] {
		case cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentPlacement:
			if identity.DrainerPod(&pod) {
				o.drainerPods = append(o.drainerPods, pod)
			}
		case cachev1alpha1.ComponentMember:
			if identity.MemberPod(o.cluster, o.statefulSet, &pod) {
				o.pods = append(o.pods, pod)
			}
		}
	}
	return nil
}

// namespaceTerminates looks only when something is on its way out.
func (r *MemcachedReconciler) namespaceTerminates(ctx context.Context, o *observed) (bool, error) {
	ends := o.cluster.DeletionTimestamp != nil ||
		slices.ContainsFunc(o.claims, func(c corev1.PersistentVolumeClaim) bool { return c.DeletionTimestamp != nil })
	if !ends {
		return false, nil
	}
	return namespaceTerminates(ctx, r.Live, o.cluster.Namespace)
}

func namespaceTerminates(ctx context.Context, live client.Reader, name string) (bool, error) {
	var namespace corev1.Namespace
	switch err := live.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil // an operator for one namespace may not look
	case err != nil:
		return false, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return namespace.DeletionTimestamp != nil, nil
}

// plan asks the pure plan what to do.
func (o *observed) plan() plan.Plan {
	in := o.input()
	return plan.Next(&in)
}

// ready tells whether the member is.
func (o *observed) ready(ordinal int32) bool {
	name := build.PodName(o.cluster.Name, ordinal)
	return slices.ContainsFunc(o.pods, func(p corev1.Pod) bool {
		return p.Name == name && p.DeletionTimestamp == nil && status.Ready(&p)
	})
}

// away are the members that aren't ready. One that is told to stop may take its time.
func (o *observed) away(ready []int32, replicas int32) []plan.Away {
	var away []plan.Away
	for i := range min(replicas, cachev1alpha1.MaxSize) {
		if slices.Contains(ready, i) {
			continue
		}
		a := plan.Away{Ordinal: i}
		if at := slices.IndexFunc(o.pods, func(p corev1.Pod) bool { return p.Name == build.PodName(o.cluster.Name, i) }); at >= 0 {
			a.Since = awaySince(&o.pods[at])
		}
		away = append(away, a)
	}
	return away
}

func awaySince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	if end := pod.DeletionTimestamp; end != nil && end.After(since) {
		since = end.Time
	}
	return since
}

// standing is what there is of the cluster, whatever the clients' list and Jobs say.
func (o *observed) standing() plan.Observed {
	in := plan.Observed{Now: o.now, Cluster: planCluster(o), StatefulSet: planStatefulSet(o.statefulSet)}
	for i := range o.claims {
		if c, ok := planClaim(o.cluster.Name, &o.claims[i]); ok {
			c.Where = o.where[c.UID]
			if c.LeavingSince.IsZero() && !c.Adopted {
				c.Unstarted = neverStarted(o.pods, o.cluster.Name, c.Ordinal, &o.claims[i], o.now)
			}
			in.Claims = append(in.Claims, c)
		}
	}
	return in
}

// input is what the plan rests on.
func (o *observed) input() plan.Observed {
	in := o.standing()
	in.Room = o.room
	in.Look(look(o.serverList), told(o.cluster))
	for i := range o.pods {
		ordinal, ok := build.PodOrdinal(o.cluster.Name, o.pods[i].Name)
		if !ok {
			continue
		}
		in.Pods = append(in.Pods, ordinal)
		if o.ready(ordinal) {
			in.Ready = append(in.Ready, ordinal)
		}
	}
	in.Away = o.away(in.Ready, in.StatefulSet.Replicas)
	for i := range o.drainerPods {
		pod := &o.drainerPods[i]
		d := identity.Duties(pod)
		claim := d.Claim
		if podEnded(pod) && pod.DeletionTimestamp != nil {
			continue // but for a finalizer of somebody else it would be gone
		}
		in.DrainerPods = append(in.DrainerPods, claim)
		if ended := drainerOf(pod).Terminated; d.Survivors > 0 && (drainerRuns(pod) || ended != nil && ended.ExitCode == 0) {
			in.DrainersAtWork = append(in.DrainersAtWork, claim)
		}
	}
	in.Drainers = drainers(o.drainerPods)
	for i := range o.jobs {
		in.Jobs = append(in.Jobs, planJob(&o.jobs[i], o.drainerPods))
	}
	for i := range o.placements {
		in.Placements = append(in.Placements, planJob(&o.placements[i], o.drainerPods))
	}
	return in
}

func planCluster(o *observed) plan.Cluster {
	spec := &o.cluster.Spec
	cluster := plan.Cluster{
		Size:                 *spec.Size,
		Plain:                spec.Storage == nil,
		Policy:               planPolicy(o.cluster),
		ReleaseUnreadable:    releasesUnreadable(o.cluster),
		WaitForRoom:          spec.Drain.OnShortage == cachev1alpha1.ShortageWait,
		Parallelism:          max(1, spec.Drain.Parallelism),
		Deleting:             o.cluster.DeletionTimestamp != nil,
		Orphan:               orphaned(o),
		DeleteClaims:         spec.Drain.WhenDeleted == cachev1alpha1.DeletionDelete,
		NamespaceTerminating: o.namespaceTerminating,
		Finalizer:            slices.Contains(o.cluster.Finalizers, cachev1alpha1.ClusterFinalizer),
	}
	cluster.Ring, cluster.PlacementOff = build.RingOf(o.cluster, 0), spec.Routing.Placement == cachev1alpha1.PlacementOff
	if spec.Storage != nil && spec.Memory != nil {
		cluster.VolumeSize, cluster.Memory = build.VolumeSize(o.cluster).Value(), spec.Memory.Value()
	}
	return cluster
}

func planPolicy(c *cachev1alpha1.Memcached) plan.DrainPolicy {
	switch c.Spec.Drain.Policy {
	case cachev1alpha1.PolicyRetain:
		return plan.Retain
	case cachev1alpha1.PolicyDelete:
		return plan.Delete
	}
	return plan.Drain
}

func releasesUnreadable(c *cachev1alpha1.Memcached) bool {
	return c.Spec.Drain.OnUnrecoverable == cachev1alpha1.UnreadableRelease
}

// orphaned: somebody deleted the Memcached and wants to keep its members (kubectl
// delete --cascade=orphan). The garbage collector takes its finalizer off when
// they have no owner any more.
func orphaned(o *observed) bool {
	if o.cluster.DeletionTimestamp == nil {
		return false
	}
	return slices.Contains(o.cluster.Finalizers, metav1.FinalizerOrphanDependents) ||
		o.statefulSet != nil && metav1.GetControllerOf(o.statefulSet) == nil
}

func planStatefulSet(s *appsv1.StatefulSet) plan.StatefulSet {
	if s == nil {
		return plan.StatefulSet{}
	}
	return plan.StatefulSet{Exists: true, Deleting: s.DeletionTimestamp != nil, Replicas: ptr.Deref(s.Spec.Replicas, 1)}
}

// planClaim is false for a claim that is not a member's.
func planClaim(cluster string, c *corev1.PersistentVolumeClaim) (plan.Claim, bool) {
	ordinal, ok := build.ClaimOrdinal(cluster, c.Name)
	aside := false
	if !ok {
		ordinal, aside = build.AsideOrdinal(cluster, c.Name)
	}
	if !ok && !aside {
		return plan.Claim{}, false
	}
	out := plan.Claim{
		Name:      c.Name,
		UID:       c.UID,
		Ordinal:   ordinal,
		Finalizer: slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer),
		Aside:     aside,
		Deleting:  c.DeletionTimestamp != nil,
		InUse:     slices.Contains(c.Finalizers, trim.PVCProtection),
		Volume:    c.Spec.VolumeName,
		Successor: build.AsideName(cluster, ordinal, c.UID),
		Pending:   aside && c.Status.Phase != corev1.ClaimBound,
		Request:   request(c.Annotations[cachev1alpha1.AnnotationDrain], plan.Skip, plan.Retry, plan.Hold),

		PlacementRequest: request(c.Annotations[cachev1alpha1.AnnotationPlacement], plan.Skip, plan.Retry),
	}
	if c.Status.Phase == corev1.ClaimBound {
		out.Asked, out.Capacity = c.Spec.Resources.Requests.Storage().Value(), c.Status.Capacity.Storage().Value()
	}
	out.Placed = ring.ParseSerial(c.Annotations[cachev1alpha1.AnnotationPlaced])
	_, out.Adopted = c.Annotations[cachev1alpha1.AnnotationAdopted]
	out.NeverStarted = c.Annotations[cachev1alpha1.AnnotationNeverStarted] != ""
	_, out.Unplaced = c.Annotations[cachev1alpha1.AnnotationUnplaced]
	out.Attempts = planAttempts(c.Annotations[cachev1alpha1.AnnotationAttempts])
	if mark, ok := c.Annotations[cachev1alpha1.AnnotationLeaving]; ok {
		out.LeavingSince = leavingSince(mark)
	}
	if receipt, err := contract.ParseReceipt(c.Annotations[cachev1alpha1.AnnotationReceipt]); err == nil {
		out.Receipt = receipt
	}
	return out, true
}

// request is what a person asked for by annotation, if it is one of these.
func request(annotation string, known ...plan.Request) plan.Request {
	if r := plan.Request(annotation); slices.Contains(known, r) {
		return r
	}
	return plan.NoRequest
}

// leavingSince reads the mark. One that a person has spoilt still is a mark.
func leavingSince(mark string) time.Time {
	if t, ok := markTime(mark); ok {
		return t
	}
	return time.Unix(1, 0)
}

// markTime is false where the mark is missing or spoilt.
func markTime(mark string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, mark)
	return t, err == nil && len(mark) <= cachev1alpha1.MaxAnnotation
}

// planAttempts reads what countFailure wrote. What a person has spoilt counts as none.
func planAttempts(s string) plan.Attempts {
	count, last, _ := strings.Cut(s, "/")
	failed, err := strconv.ParseInt(count, 10, 32)
	if err != nil || failed < 1 || len(last) > identity.MaxUID || len(s) > cachev1alpha1.MaxAnnotation {
		return plan.Attempts{}
	}
	return plan.Attempts{Failed: int32(failed), Last: types.UID(last)}
}

func (o *observed) statusInput(p plan.Plan, err error, now time.Time) *status.Input {
	started := map[types.UID]metav1.Time{}
	for i := range o.jobs {
		started[identity.ClaimUID(&o.jobs[i])] = o.jobs[i].CreationTimestamp
	}
	room := o.room
	if room.Asking() {
		room = nil
	}
	servers, record := build.ListedServers(o.cluster, p.Listed), p.Record
	if !o.listed && o.cluster.DeletionTimestamp == nil {
		in := o.input()
		servers, record = o.cluster.Status.Servers, in.Record // nobody was told of others
	}
	drainers := slices.DeleteFunc(slices.Clone(o.drainerPods), func(p corev1.Pod) bool { return drainerEnded(&p) })
	return &status.Input{
		Cluster: o.cluster, StatefulSet: o.statefulSet, Deployment: o.deployment, Pods: o.pods, Drainers: drainers, Kept: o.kept(),
		Plan: p, Room: room, Servers: servers, Ring: record, Monitoring: o.monitored, Binding: o.binding, GrowthRefused: o.growthRefused, Marked: o.marked, Progress: o.progress, JobStarted: started,
		Waits: o.drainerWaits(now), Err: err, Now: now,
		NotCreated: o.notCreated, Refused: o.refused, RollOutWaits: o.rollOutWaits, MembersWritten: o.membersWritten,
	}
}
