// Package observe reads a cluster and everything that belongs to it: from the cache to plan, and live before
// steps that can't be undone. Package observe translates what it reads for package plan, and writes nothing.
package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

// GrowthInterval is how often the operator tries again to grow a volume that may not grow. Its
// storage class or a quota may allow it by then, and neither is watched.
const GrowthInterval = 5 * time.Minute

// clusterIndex finds the cached objects of one cluster.
const clusterIndex = "cluster"

// IndexByCluster adds the index by cluster to the manager's cache.
func IndexByCluster(mgr ctrl.Manager) error {
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &batchv1.Job{}, &corev1.Service{}} {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), o, clusterIndex, func(o client.Object) []string { return identity.ClusterName(o) })
		if err != nil {
			return fmt.Errorf("index %T by cluster: %w", o, err)
		}
	}
	return nil
}

// Reader reads clusters.
type Reader struct {
	// Cache is read to plan, Live before steps that can't be undone.
	Cache, Live client.Reader
	// Unlabelled are claims without the operator's label; nil has none.
	Unlabelled *read.UnlabelledClaims
	Clock      clock.PassiveClock
	// Drainers and Members have the answers of drainers and members, which are asked beside the
	// reconciles.
	Drainers     *ask.Drainers
	Members      *ask.Members
	Rings        *ask.Routers
	Certificates *ask.Certificates
	Steps        *ask.Steps
	Nodes        *ask.Nodes
	// Options are the build options of drainers; nil if they are not known.
	Options *build.Options
	// NotCreated has the reasons why pods are missing, GrowthRefused those why volumes may not
	// grow.
	NotCreated    *read.MissingPods
	GrowthRefused *remembered.Answers[string]
	// Missing remembers since when members have had no pod; nil knows of no time.
	Missing *remembered.Missing[int32]
	// Idle remembers since when Jobs that move items have had no pod at work; nil knows of no time.
	Idle *remembered.Missing[types.UID]
	// Seen are the names of claims and Jobs that clusters had; nil remembers none.
	Seen *remembered.Names
	// Obstructed has the claims whose last step the API server has refused; nil remembers none.
	Obstructed *remembered.Obstructions
}

// Objects are the objects of a cluster that apply compares and writes, as the cache has them. An
// object that doesn't exist is nil.
type Objects struct {
	StatefulSet *appsv1.StatefulSet
	Deployment  *appsv1.Deployment
	Service     *corev1.Service
	// ServerList is the clients' list.
	ServerList    *corev1.ConfigMap
	NetworkPolicy *networkingv1.NetworkPolicy
	Budget        *policyv1.PodDisruptionBudget
	// ListService and Endpoints have the clients' list as DNS records. Discovery is the
	// Service of spec.discovery.
	ListService, Discovery *corev1.Service
	Endpoints              *discoveryv1.EndpointSlice
	// MemberServices has the Services of single members, by their ordinals.
	MemberServices map[int32]corev1.Service

	// Certificates are those of members and routers that are ready, as far as is known.
	Certificates []ask.CertificateOf
	// Routers has the objects of spec.router.
	Routers Routers

	// Warm has the known facts about the source of spec.warmFrom; nil if the spec has none.
	Warm *Warm

	Pods        []corev1.Pod // of the members
	DrainerPods []corev1.Pod // of drains and moves
}

// State is a cluster and everything that belongs to it.
type State struct {
	Objects
	Now     time.Time
	Cluster *cachev1alpha1.Memcached
	// Absent: the Memcached is gone, but has left claims with a finalizer.
	Absent bool

	NamespaceTerminating bool

	Claims []corev1.PersistentVolumeClaim
	// Where: the places of the volumes that were read live, by the claim's UID.
	Where map[types.UID]claims.Where
	// Jobs drain, Moves move items, Warms copy from the source of spec.warmFrom.
	Jobs, Moves, Warms []batchv1.Job

	// EndedJobs are Jobs that were deleted and have ended, and that only another owner's finalizer
	// keeps.
	EndedJobs []batchv1.Job
	Progress  map[types.UID]contract.Progress // by the claim's UID
	// Obstructed is as in plan.
	Obstructed map[types.UID]claims.Obstruction
	// DrainerTemplate is as in build; empty if it is not known.
	DrainerTemplate string
	// PortsMark is the hash of the members' ports that is written on Jobs created now; empty if
	// there are no Jobs.
	PortsMark string
	// Unlabelled are objects of the cluster that the cache doesn't have because they lack
	// their label. Found has the claims that a live search found; nil if there was none.
	// Unfound is why claims of running members are missing from both.
	Unlabelled []client.Object
	Found      *read.LiveClaims
	Unfound    error
	// Room is for a scale-down that is about to begin, StepRoom for a member that is about to step out; nil if
	// none is.
	Room, StepRoom *plan.Room
	// Empty has the member that is out of the ring, if it has started empty. Aside and what is known of nodes are as in
	// plan.
	Empty, Aside []int32
	Cordoned     []plan.Cordoned
	NodesPending bool
	NodesUnknown string
	// MissingSince has since when members have had no pod, as far as is known.
	MissingSince map[int32]time.Time
	// IdleSince has since when Jobs that move items have had no pod at work, as far as is known.
	IdleSince map[types.UID]time.Time
	// NotCreated is a member's pod that Kubernetes can't create; DrainersNotCreated has the
	// drainers' pods that it can't create, by the claim's UID.
	NotCreated         *status.NotCreated
	DrainersNotCreated map[types.UID]claims.Wait
	// NotEnded has why Kubernetes can't delete the pods of members that are to go, by their ordinals.
	NotEnded map[int32]string
	// Refused is a step that this reconcile refused, or nil.
	Refused *status.Refusal
	// GrowthRefused is why the API server refuses to let volumes grow; empty if it
	// doesn't.
	GrowthRefused string
	// Waits is when to reconcile again if no event comes earlier.
	Waits read.Requeue
}

// Cluster returns the Memcached, or nil if nothing is left to do for it. A Memcached that is gone
// but left claims with our finalizer (its own finalizer was removed by force) is treated as
// deleted, under the default policy. Its size may be missing (LiveSize).
func (r *Reader) Cluster(ctx context.Context, key client.ObjectKey) (*cachev1alpha1.Memcached, error) {
	cluster := &cachev1alpha1.Memcached{}
	err := r.Cache.Get(ctx, key, cluster)
	if err == nil || !apierrors.IsNotFound(err) {
		return cluster, err
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.list(ctx, key, &claims); err != nil {
		return nil, err
	}
	kept := slices.ContainsFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool {
		return identity.OwnClaim(key.Name, &c) && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer)
	})
	if !kept {
		return nil, nil
	}
	if err := r.Live.Get(ctx, key, cluster); !apierrors.IsNotFound(err) {
		return nil, err // the cache will get it, with an event
	}
	cluster.Namespace, cluster.Name = key.Namespace, key.Name
	cluster.DeletionTimestamp = ptr.To(metav1.NewTime(r.Clock.Now()))
	cluster.Spec = cachev1alpha1.MemcachedSpec{Size: ptr.To[int32](0), Storage: &cachev1alpha1.StorageSpec{}}
	return cluster, nil
}

// list fills the list with the cluster's objects from the cache.
func (r *Reader) list(ctx context.Context, key client.ObjectKey, list client.ObjectList) error {
	return r.Cache.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{clusterIndex: key.Name})
}

// Observe reads everything that belongs to the cluster from the cache, and the rest live.
func (r *Reader) Observe(ctx context.Context, cluster *cachev1alpha1.Memcached) (*State, error) {
	o := &State{Now: r.Clock.Now(), Cluster: cluster, Absent: cluster.UID == "", DrainersNotCreated: map[types.UID]claims.Wait{}}
	key := client.ObjectKeyFromObject(cluster)
	var err error
	if cluster.Spec.Storage != nil {
		o.StatefulSet, err = ownOrLive[appsv1.StatefulSet](ctx, r, o, key.Name)
	} else {
		o.Deployment, err = ownOrLive[appsv1.Deployment](ctx, r, o, key.Name)
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
	r.observeRings(key, o)
	r.observeCertificates(key, o)
	if cluster.Spec.Storage == nil {
		return o, nil
	}
	if cluster.Spec.HasVolumes() {
		if err := r.observeClaims(ctx, o); err != nil {
			return nil, err
		}
		if err := r.observeVolumes(ctx, o); err != nil {
			return nil, err
		}
	}
	if err := r.observeJobs(ctx, key, o); err != nil {
		return nil, err
	}
	r.observeMissing(key, o)
	r.observeCreation(ctx, o)
	if cluster.Spec.HasVolumes() {
		o.Unfound = r.findClaims(ctx, o)
	}
	if o.NamespaceTerminating, err = r.observeNamespace(ctx, o); err != nil {
		return nil, err
	}
	r.observeStep(key, o)
	r.observeNodes(key, o)
	if err := r.observeWarm(ctx, o); err != nil {
		return nil, err
	}
	r.observeRoom(ctx, o)
	if why, fresh := r.GrowthRefused.Last(cluster, r.Clock.Now(), GrowthInterval); fresh {
		o.GrowthRefused = why
	}
	return o, nil
}

// observeOwned reads the objects beside the members.
func (r *Reader) observeOwned(ctx context.Context, key client.ObjectKey, o *State) error {
	var err error
	if o.Service, err = Own[corev1.Service](ctx, r, o.Cluster, key.Name); err != nil {
		return err
	}
	list := build.ServersName(key.Name)
	if o.Cluster.Spec.Storage != nil {
		o.ServerList, err = ownOrLive[corev1.ConfigMap](ctx, r, o, list)
	} else {
		o.ServerList, err = Own[corev1.ConfigMap](ctx, r, o.Cluster, list)
	}
	if err != nil {
		return err
	}
	if o.NetworkPolicy, err = Own[networkingv1.NetworkPolicy](ctx, r, o.Cluster, key.Name); err != nil {
		return err
	}
	if o.Budget, err = Own[policyv1.PodDisruptionBudget](ctx, r, o.Cluster, key.Name); err != nil {
		return err
	}
	if o.ListService, err = Own[corev1.Service](ctx, r, o.Cluster, build.ListName(key.Name)); err != nil {
		return err
	}
	if o.Endpoints, err = Own[discoveryv1.EndpointSlice](ctx, r, o.Cluster, build.ListName(key.Name)); err != nil || o.Cluster.Spec.Storage == nil {
		return err
	}
	if o.Discovery, err = Own[corev1.Service](ctx, r, o.Cluster, build.DiscoveryName(key.Name)); err != nil {
		return err
	}
	if err := r.observeRouters(ctx, key, o); err != nil {
		return err
	}
	return r.observeMemberServices(ctx, key, o)
}

func (r *Reader) observePods(ctx context.Context, key client.ObjectKey, o *State) error {
	var pods corev1.PodList
	if err := r.list(ctx, key, &pods); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		switch pod.Labels[cachev1alpha1.LabelComponent] {
		case cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentMove:
			if identity.DrainerPod(&pod) {
				o.DrainerPods = append(o.DrainerPods, pod)
			}
		case cachev1alpha1.ComponentMember:
			if identity.MemberPod(o.Cluster, o.StatefulSet, &pod) {
				o.Pods = append(o.Pods, pod)
			}
		case cachev1alpha1.ComponentRouter:
			if identity.RouterPod(o.Cluster, &pod) {
				o.Routers.Pods = append(o.Routers.Pods, pod)
			}
		}
	}
	return nil
}

// observeNamespace tells whether the namespace is terminating. observeNamespace reads the namespace only if the
// Memcached or a claim without a receipt is being deleted.
func (r *Reader) observeNamespace(ctx context.Context, o *State) (bool, error) {
	ends := o.Cluster.DeletionTimestamp != nil ||
		slices.ContainsFunc(o.Claims, func(c corev1.PersistentVolumeClaim) bool {
			return c.DeletionTimestamp != nil && c.Annotations[cachev1alpha1.AnnotationReceipt] == ""
		})
	if !ends {
		return false, nil
	}
	return read.NamespaceTerminates(ctx, r.Live, o.Cluster.Namespace)
}

// Plan asks the pure plan for its decision.
func (o *State) Plan() plan.Plan {
	in := o.Input()
	return plan.Next(&in)
}

// observeMissing notes which members that the StatefulSet should have have no pod: for a moment, between two pods, or for
// longer.
func (r *Reader) observeMissing(key client.ObjectKey, o *State) {
	there := map[int32]bool{}
	for i := range o.Pods {
		if ordinal, ok := build.PodOrdinal(key.Name, o.Pods[i].Name); ok {
			there[ordinal] = true
		}
	}
	var missing []int32
	for i := range min(planStatefulSet(o.StatefulSet).Replicas, cachev1alpha1.MaxSize) {
		if !there[i] {
			missing = append(missing, i)
		}
	}
	o.MissingSince = r.Missing.Note(key, missing, o.Now)
}

// readiness tells which of the members that the StatefulSet should have are ready, when the last of
// them became ready, and which aren't ready. The time that a member takes to stop doesn't count as
// away. missing is since when a member has had no pod.
func readiness(cluster string, pods []corev1.Pod, replicas int32, missing func(member int32) time.Time) (ready []int32, last time.Time, away []plan.Away) {
	ordinals := map[int32]*corev1.Pod{}
	for i := range pods {
		if ordinal, ok := build.PodOrdinal(cluster, pods[i].Name); ok {
			ordinals[ordinal] = &pods[i]
			if pods[i].DeletionTimestamp == nil && claims.PodReady(&pods[i]) {
				ready = append(ready, ordinal)
				if since := readySince(&pods[i]); since.After(last) {
					last = since
				}
			}
		}
	}
	for i := range min(replicas, cachev1alpha1.MaxSize) {
		if slices.Contains(ready, i) {
			continue
		}
		a := plan.Away{Ordinal: i}
		if pod := ordinals[i]; pod != nil {
			a.Since = awaySince(pod)
		} else {
			a.Since = missing(i)
		}
		away = append(away, a)
	}
	return ready, last, away
}

// servingPlaces has as many places of a cluster without storage as pods are ready.
func servingPlaces(pods []corev1.Pod) (places []int32) {
	for i := range pods {
		if pods[i].DeletionTimestamp == nil && claims.PodReady(&pods[i]) {
			places = append(places, int32(len(places)))
		}
	}
	return places
}

// memoryRuns tells whether at least one member with this memory (in bytes) or more is ready.
func memoryRuns(pods []corev1.Pod, memory int64) bool {
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp == nil && claims.PodReady(&p) && slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
			return c.Name == build.ContainerMemcached && build.MemoryOf(c.Command) >= memory
		})
	})
}

// readySince is when the condition Ready last changed.
func readySince(pod *corev1.Pod) (since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

func awaySince(pod *corev1.Pod) time.Time {
	since := pod.CreationTimestamp.Time
	if changed := readySince(pod); changed.After(since) {
		since = changed
	}
	if end := pod.DeletionTimestamp; end != nil && end.After(since) {
		since = end.Time
	}
	return since
}

// withoutList is the plan's input without what depends on the clients' list, pods and Jobs.
func (o *State) withoutList() plan.Observed {
	in := plan.Observed{Facts: claims.Facts{Now: o.Now}, Cluster: o.planCluster(), StatefulSet: planStatefulSet(o.StatefulSet)}
	for i := range o.Claims {
		if c, ok := PlanClaim(o.Cluster.Name, &o.Claims[i]); ok {
			if where, looked := o.Where[c.UID]; looked {
				c.Where = where
			}
			if c.LeavingSince.IsZero() && !c.Adopted {
				c.NotStartedYet = neverStarted(o.Pods, o.Cluster.Name, c.Ordinal, &o.Claims[i], o.Now)
			}
			in.Claims = append(in.Claims, c)
		}
	}
	claims.NoteLost(in.Claims)
	if in.Cluster.InPods {
		in.Claims = holders(o.Cluster.Name, o.Pods)
	}
	return in
}

// Input is everything that the plan depends on.
func (o *State) Input() plan.Observed {
	in := o.withoutList()
	in.Room, in.StepRoom = o.Room, o.StepRoom
	in.Empty, in.Tellable = o.Empty, tellable(o.Cluster.Name, o.Pods)
	in.Aside, in.Cordoned, in.NodesPending, in.NodesUnknown = o.Aside, o.Cordoned, o.NodesPending, o.NodesUnknown
	in.StatefulSet.Seen, in.StatefulSet.Outdated = seesTemplate(o.Cluster.Name, o.Pods, o.StatefulSet)
	in.Obstructed, in.NotEnded = o.Obstructed, o.NotEnded
	in.ReadList(PlanList(o.ServerList), statusListSize(o.Cluster))
	for i := range o.Pods {
		if ordinal, ok := build.PodOrdinal(o.Cluster.Name, o.Pods[i].Name); ok {
			in.Pods = append(in.Pods, ordinal)
		}
	}
	in.MemberPods, in.RouterPods = toTell(o.Cluster.Name, o.Pods), toTell(o.Cluster.Name, o.Routers.Pods)
	in.MemberServices = o.planMemberServices()
	if in.Cluster.Plain {
		in.Ready = servingPlaces(o.Pods)
	} else {
		in.Ready, in.LastReady, in.Away = readiness(o.Cluster.Name, o.Pods, in.StatefulSet.Replicas, func(member int32) time.Time { return o.MissingSince[member] })
	}
	in.MemoryRuns = memoryRuns(o.Pods, in.Cluster.Memory)
	in.ClaimsWithDrainerPod, in.ClaimsWithDrainerAtWork = read.Mounted(o.DrainerPods)
	in.Table = planTable(o.Cluster, &in, o.Routers.Told, o.Routers.Since, o.Routers.Acknowledged)
	in.Drainers = drainers(o.DrainerPods, o.Progress, o.Now)
	for i := range o.Jobs {
		in.Jobs = append(in.Jobs, o.planJob(&o.Jobs[i]))
	}
	for i := range o.Moves {
		in.Moves = append(in.Moves, o.planJob(&o.Moves[i]))
	}
	for i := range o.Warms {
		in.Warms = append(in.Warms, o.planJob(&o.Warms[i]))
	}
	in.Warm = o.planWarm()
	in.Stuck = o.stuck()
	return in
}

// planJob translates the Job for the plan, with the known facts about its pods.
func (o *State) planJob(job *batchv1.Job) claims.Job {
	out := PlanJob(job, o.DrainerPods)
	out.IdleSince = o.IdleSince[job.UID]
	out.Unstarted = out.State == claims.JobActive && read.Unstarted(job, o.DrainerPods)
	if out.State == claims.JobActive && o.PortsMark != "" && job.Annotations[cachev1alpha1.AnnotationPorts] != o.PortsMark {
		out.Replace = "members listen at other ports now" // the Job would not reach them
	}
	out.Outdated = o.DrainerTemplate != "" && job.Annotations[cachev1alpha1.AnnotationDrainer] != o.DrainerTemplate
	return out
}

// toTell returns the pods that can still be told a list or a table.
func toTell(cluster string, pods []corev1.Pod) []action.PodRef {
	var refs []action.PodRef
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			ordinal, _ := build.PodOrdinal(cluster, pods[i].Name)
			refs = append(refs, action.PodRef{Name: pods[i].Name, UID: pods[i].UID, Ordinal: ordinal})
		}
	}
	return refs
}

// planCluster translates the Memcached for the plan, with the other facts that decide what is
// wanted.
func (o *State) planCluster() plan.Cluster {
	c := planSpec(o.Cluster)
	c.Routers = c.Routers || o.Routers.any()
	c.Orphan = orphaned(o)
	c.NamespaceTerminating = o.NamespaceTerminating
	return c
}

// planSpec translates the Memcached alone for the plan.
func planSpec(c *cachev1alpha1.Memcached) plan.Cluster {
	spec := &c.Spec
	cluster := plan.Cluster{
		Size:      *spec.Size,
		Plain:     spec.Storage == nil,
		InPods:    spec.InPods(),
		Discovery: spec.Discovery != nil,
		Routers:   spec.Router != nil,
		Exclusive: build.RoutersExclusive(c),
		Moved:     build.Moved(c),

		StepsOutForEvictions: build.StepsOutForEvictions(c),
		StableAddresses:      build.Stable(c),
		Terms:                claims.Terms{Policy: PlanPolicy(c), ReleaseUnreadable: ReleasesUnreadable(c), Deleting: c.DeletionTimestamp != nil},
		WaitForRoom:          spec.Drain.OnShortage == cachev1alpha1.ShortageWait,
		Parallelism:          max(1, spec.Drain.Parallelism),
		DeleteClaims:         spec.Drain.WhenDeleted == cachev1alpha1.DeletionDelete,
		Finalizer:            slices.Contains(c.Finalizers, cachev1alpha1.OwnerFinalizer),
	}
	cluster.Ring, cluster.MovesOff = build.RingOf(c, 0), spec.Routing.Moves == cachev1alpha1.MovesOff
	if cluster.Patience = build.Patience(c); cluster.Patience > 0 || cluster.InPods {
		cluster.MoveDeadline = build.MoveDeadline(c)
	}
	if spec.HasVolumes() && spec.Memory != nil {
		cluster.VolumeSize, cluster.Memory = build.VolumeSize(c).Value(), spec.Memory.Value()
		cluster.VolumeSizeGiven = !spec.Storage.Size.IsZero()
	}
	return cluster
}

// PlanPolicy translates spec.drain.policy for the plan.
func PlanPolicy(c *cachev1alpha1.Memcached) claims.DrainPolicy {
	policy, _ := read.Policy(c.Spec.Drain.Policy)
	return policy
}

// ReleasesUnreadable tells whether spec.drain.onUnrecoverable is Release.
func ReleasesUnreadable(c *cachev1alpha1.Memcached) bool {
	return c.Spec.Drain.OnUnrecoverable == cachev1alpha1.UnreadableRelease
}

// orphaned tells whether a person has deleted the Memcached and wants to keep its members (kubectl
// delete --cascade=orphan). The garbage collector removes the finalizer orphan when the members
// have no owner any more.
func orphaned(o *State) bool {
	if o.Cluster.DeletionTimestamp == nil {
		return false
	}
	return slices.Contains(o.Cluster.Finalizers, metav1.FinalizerOrphanDependents) ||
		o.StatefulSet != nil && metav1.GetControllerOf(o.StatefulSet) == nil
}

func planStatefulSet(s *appsv1.StatefulSet) plan.StatefulSet {
	if s == nil {
		return plan.StatefulSet{}
	}
	return plan.StatefulSet{Exists: true, UID: s.UID, Deleting: s.DeletionTimestamp != nil, Replicas: ptr.Deref(s.Spec.Replicas, 1), Partition: partitionOf(s)}
}
