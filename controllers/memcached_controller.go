// Package controllers reconciles Memcached clusters: observe, plan, apply, status, in this order.
// Each of these steps is a package of internal. Package controllers has the order and the watches.
package controllers

import (
	"context"
	"errors"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/apply"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/rollout"
	"example.com/memcached-operator/controllers/internal/status"
)

// Options are the settings of the operator's Deployment.
type Options = build.Options

// MemcachedReconciler reconciles Memcached clusters.
type MemcachedReconciler struct {
	// Client reads from the cache and writes.
	client.Client
	// Live reads from the API server, before steps that can't be undone.
	Live client.Reader
	// Namespaces are those that the manager watches; none for all.
	Namespaces []string
	// Events records events for people.
	Events events.EventRecorder
	// Progress reads the progress of running drains; nil shows none.
	Progress ProgressReader
	// Memory reads the memory of the members; nil lets every scale-down begin.
	Memory MemoryReader
	// Rings asks routers which table they have acknowledged; nil asks none.
	Rings RingReader
	// Certificates asks members and routers about their certificates; nil asks none.
	Certificates CertificateReader
	// Steps asks members that are out of the ring whether they have started empty; nil asks none.
	Steps StepReader
	// Nodes are watched for clusters whose members step out before they are evicted; nil for none.
	Nodes NodeReader
	// Metrics counts drains, moves and roll-outs; nil counts nothing.
	Metrics *Metrics
	Options Options
	// Unlabelled are claims that the manager's cache does not have (WatchUnlabelled).
	Unlabelled *read.UnlabelledClaims
	// RolloutsAtOnce is how many clusters' members an upgrade of the operator replaces
	// at the same time, and how many clusters' routers; 0 stands for 3.
	RolloutsAtOnce int
	// Installation is the name of this installation of the operator, which its replicas share and no other
	// installation has. Without a name, other installations are ignored.
	Installation string
	Clock        clock.PassiveClock

	installations remembered.Installations
	written       remembered.Written
	statuses      remembered.Statuses
	matches       remembered.Matches
	refusedSteps  remembered.Refusals
	// rollouts and routerRollouts have the turns of roll-outs; turns() creates them once.
	rollouts, routerRollouts *rollout.Turns
	rolloutsOnce             sync.Once
	// progress and room are sampled beside the reconciles; wakes starts a reconcile when an answer
	// is new.
	progress *ask.Drainers
	room     *ask.Members
	rings    *ask.Routers
	// certificates are sampled, too.
	certificates *ask.Certificates
	steps        *ask.Steps
	nodes        *ask.Nodes
	wakes        wakes
	// growthRefused has the API server's reason why no volume may grow. A cluster's volumes have
	// the same class, so one refusal is enough.
	growthRefused remembered.Answers[string]
	// obstructed has the claims whose last step the API server has refused.
	obstructed remembered.Obstructions
	// seen has the names of the claims and Jobs that clusters had.
	seen remembered.Names
	// notCreated knows since when pods are missing, and why.
	notCreated read.MissingPods
	// missing knows since when members have had no pod.
	missing remembered.Missing[int32]
	// idle has since when Jobs have had no pod at work.
	idle remembered.Missing[types.UID]
	// monitors and bindings apply objects that are not watched.
	monitors apply.Monitors
	bindings apply.Bindings
}

// outcome is the state that this reconcile observed, and what it has written.
type outcome struct {
	*observe.State
	done apply.Done
	// other is another installation of the operator, which has asked whether this one is running;
	// empty if there is none.
	other string
}

// reader returns a reader of clusters. The reconciler keeps its state.
func (r *MemcachedReconciler) reader() *observe.Reader {
	return &observe.Reader{
		Cache: r.Client, Live: r.Live, Unlabelled: r.Unlabelled, Clock: r.Clock, Drainers: r.progress, Members: r.room, Rings: r.rings, Certificates: r.certificates, Steps: r.steps, Nodes: r.nodes,
		NotCreated: &r.notCreated, GrowthRefused: &r.growthRefused, Options: &r.Options, Obstructed: &r.obstructed, Seen: &r.seen, Missing: &r.missing, Idle: &r.idle,
	}
}

// applier returns an applier of plans. The reconciler keeps its state.
func (r *MemcachedReconciler) applier() *apply.Applier {
	return &apply.Applier{
		Client: r.Client, Reader: r.reader(), Events: r.Events, Options: r.Options, Clock: r.Clock,
		Installation: r.Installation, Turns: r.turns(), RouterTurns: r.routerTurns(), Matches: &r.matches, Bindings: &r.bindings, Monitors: &r.monitors,
	}
}

// turns has the turns of the roll-outs that an upgrade begins.
func (r *MemcachedReconciler) turns() *rollout.Turns {
	r.rolloutsOnce.Do(func() {
		options := rollout.Options{
			Cache: r.Client, Live: r.Live, AtOnce: r.RolloutsAtOnce, Clock: r.Clock,
			Wake: r.wakes.now, Tell: r.Metrics.Rollouts,
		}
		r.rollouts = rollout.NewTurns(options)
		options.Routers, options.Tell = true, func(int, int) {}
		r.routerRollouts = rollout.NewTurns(options)
	})
	return r.rollouts
}

// routerTurns has the turns of the routers' roll-outs.
func (r *MemcachedReconciler) routerTurns() *rollout.Turns {
	r.turns()
	return r.routerRollouts
}

// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/status,verbs=patch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one cluster a step closer to its spec.
func (r *MemcachedReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	reader, applier := r.reader(), r.applier()
	cluster, err := reader.Cluster(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	cluster = r.written.Newest(cluster, r.Clock.Now())
	version, generation := cluster.ResourceVersion, cluster.Generation
	mine, look, err := r.manages(ctx, cluster)
	if err != nil || !mine {
		r.noteWrite(cluster, version, generation)
		if r.installed().tells(cluster, cluster.Status.Conditions, err) {
			return r.unobserved(ctx, cluster, err)
		}
		return r.leaveAlone(req.NamespacedName, look, err)
	}
	sizeErr, err := r.writeSize(ctx, reader, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.noteWrite(cluster, version, generation)
	state, denied, err := r.observe(ctx, reader, applier, cluster)
	if err != nil {
		return r.unobserved(ctx, cluster, err)
	}
	seen, p := &outcome{State: state, other: r.installed().other(cluster)}, state.Plan()
	seen.Waits.AtMost(look)
	if observe.Paused(cluster) {
		r.turns().StandAside(req.NamespacedName)
		r.routerTurns().StandAside(req.NamespacedName)
		p = state.PausedPlan(p)
		seen.done.Monitored = status.MonitoringBefore(&cluster.Status)
	}
	warningErr := r.writeEarlyWarning(ctx, seen, p)
	if warningErr != nil && !read.Denied(warningErr) {
		return r.result(seen, &p, nil, warningErr)
	}
	var applyErr error
	if !observe.Paused(cluster) {
		seen.done, applyErr = applier.Apply(ctx, cluster, &state.Objects, p.Actions)
		state.Jobs = append(state.Jobs, seen.done.Drains...)
		state.Moves = append(state.Moves, seen.done.Moves...)
		state.Warms = append(state.Warms, seen.done.Warms...)
		r.count(seen)
	}
	if denied != nil {
		applyErr = write.Worse(applyErr, denied)
	}
	if sizeErr != nil && !passes(sizeErr) { // otherwise another client has just changed the Memcached
		applyErr = errors.Join(applyErr, sizeErr)
	}
	if passes(applyErr) {
		r.noteRefusal(seen, applyErr)
	}
	statusErr := r.writeStatus(ctx, seen, p, applyErr)
	r.noteWrite(cluster, version, generation)
	return r.result(seen, &p, applyErr, statusErr)
}

// observe reads the cluster's objects, and labels those that have lost their label. denied says why some of
// them get no label.
func (r *MemcachedReconciler) observe(ctx context.Context, reader *observe.Reader, applier *apply.Applier, cluster *cachev1alpha1.Memcached) (state *observe.State, denied, err error) {
	state, err = reader.Observe(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	denied, failed := applier.Label(ctx, state)
	if cluster.DeletionTimestamp == nil { // a deleted cluster releases the claims that are known
		err = errors.Join(failed, state.Unfound)
	}
	return state, denied, err
}

// noteWrite remembers the Memcached if this reconcile has written it. version and generation are
// those at the reconcile's beginning.
func (r *MemcachedReconciler) noteWrite(cluster *cachev1alpha1.Memcached, version string, generation int64) {
	if cluster.ResourceVersion != version {
		r.written.Note(cluster, generation, r.Clock.Now())
	}
}

// writeSize writes the cluster's present size to a spec without a size. Then no member leaves, and
// an autoscaler reads the size from the scale subresource. A person may set a size at the same
// time, which has precedence, so the write has an optimistic lock. If the write fails, the
// reconcile continues with the present size, and refused says why.
func (r *MemcachedReconciler) writeSize(ctx context.Context, reader *observe.Reader, cluster *cachev1alpha1.Memcached) (refused, err error) {
	if cluster.Spec.Size != nil {
		return nil, nil
	}
	size, err := reader.LiveSize(ctx, cluster)
	if err != nil {
		return nil, err
	}
	before := cluster.DeepCopy()
	cluster.Spec.Size = &size
	if cluster.DeletionTimestamp != nil || observe.Paused(cluster) {
		return nil, nil
	}
	ctx = write.Because(ctx, "the spec has no size: it keeps the one that the cluster has")
	refused = r.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cachev1alpha1.ManagedBy))
	if refused != nil {
		before.DeepCopyInto(cluster)
		cluster.Spec.Size = &size
	}
	return client.IgnoreNotFound(refused), nil
}

// ending ends this reconcile.
func (r *MemcachedReconciler) ending() *ending {
	return &ending{Client: r.Client, Events: r.Events, now: r.Clock.Now(), statuses: &r.statuses, refused: &r.refusedSteps, wakes: &r.wakes}
}

// unobserved ends a reconcile that could not read everything that belongs to the cluster.
func (r *MemcachedReconciler) unobserved(ctx context.Context, cluster *cachev1alpha1.Memcached, why error) (ctrl.Result, error) {
	end, version := r.ending(), cluster.ResourceVersion
	defer func() { r.noteWrite(cluster, version, cluster.Generation) }()
	return end.unobserved(ctx, cluster, why, func() { status.Unobserved(cluster, why, passes(why), end.now) })
}

// forget forgets a cluster that is gone.
func (r *MemcachedReconciler) forget(key client.ObjectKey) {
	r.installations.Forget(key)
	r.written.Forget(key)
	r.statuses.Forget(key)
	r.matches.Forget(key)
	r.refusedSteps.Forget(key)
	r.monitors.Forget(key)
	r.growthRefused.Forget(key)
	r.obstructed.Forget(key)
	r.seen.Forget(key)
	r.bindings.Forget(key)
	r.notCreated.Forget(key)
	r.missing.Forget(key)
	r.idle.Forget(key)
	r.progress.Forget(key)
	r.room.Forget(key)
	r.rings.Forget(key)
	r.certificates.Forget(key)
	r.steps.Forget(key)
	r.nodes.Forget(key)
	r.turns().Forget(key)
	r.routerTurns().Forget(key)
}

// result ends a reconcile that has observed everything.
func (r *MemcachedReconciler) result(o *outcome, p *plan.Plan, applyErr, statusErr error) (ctrl.Result, error) {
	r.wait(o, p)
	return r.ending().result(o.Cluster, &o.Waits, applyErr, statusErr)
}

// writeEarlyWarning writes, before a roll-out, the advice for which a person may want to stop it. Everything
// else in status follows what was done.
func (r *MemcachedReconciler) writeEarlyWarning(ctx context.Context, seen *outcome, p plan.Plan) error {
	advice := status.EarlyWarning(seen.statusInput(p, nil, r.Clock.Now()))
	if advice == nil || seen.Absent || observe.Paused(seen.Cluster) {
		return nil
	}
	before := seen.Cluster.DeepCopy()
	seen.Cluster.Status.Advice = advice
	if err := r.ending().patch(ctx, before, seen.Cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.announce(before, seen.Cluster)
	return nil
}

// writeStatus writes what Compute returns, if it differs and can't wait.
func (r *MemcachedReconciler) writeStatus(ctx context.Context, seen *outcome, p plan.Plan, applyErr error) error {
	if seen.Absent || seen.done.FinalizerRemoved {
		return nil
	}
	if passes(applyErr) {
		applyErr = nil // the cache was stale, and the next reconcile sees more
	}
	if seen.Room.Asking() && applyErr == nil {
		return nil // the members' answers are still to come
	}
	before, end := seen.Cluster.DeepCopy(), r.ending()
	in := seen.statusInput(p, withheld(applyErr, &p.Work), end.now)
	seen.Cluster.Status = status.Compute(in)
	seen.Waits.AtMost(in.DueIn())
	written, wait, err := end.write(ctx, before, seen.Cluster, remembered.ClusterChange(&before.Status, &seen.Cluster.Status))
	seen.Waits.AtMost(wait)
	if !written {
		return err
	}
	r.announce(before, seen.Cluster)
	if from, to := before.Status.Phase, seen.Cluster.Status.Phase; from != to {
		logf.FromContext(ctx).Info("The phase changed", "from", from, "to", to)
	}
	r.Metrics.StatusWritten(&before.Status, &seen.Cluster.Status, &p)
	return nil
}

// WatchUnlabelled watches the claims that lack a Memcached's label, in these namespaces, or in all if none are given.
func WatchUnlabelled(mgr ctrl.Manager, namespaces ...string) (*read.UnlabelledClaims, error) {
	return read.WatchUnlabelled(mgr, build.ClaimCluster, namespaces...)
}

// SetupWithManager adds the controller, its watches and its indexes to the manager.
func (r *MemcachedReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	if err := observe.IndexByCluster(mgr); err != nil {
		return err
	}
	r.Client = write.Logged(r.Client)
	if err := r.setUpSamplers(mgr); err != nil {
		return err
	}
	if options.RateLimiter == nil {
		options.RateLimiter = newBackoff()
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(clusterOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("memcached").
		For(&cachev1alpha1.Memcached{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, deletionBegan, askedInStatus))).
		Owns(&appsv1.StatefulSet{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&discoveryv1.EndpointSlice{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(notItsStatus)).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, byLabel).
		Watches(&corev1.PersistentVolumeClaim{}, byLabel).
		WatchesRawSource(r.Unlabelled.Source(func(_ context.Context, claim client.ObjectKey) []reconcile.Request {
			name, is := build.ClaimCluster(claim.Name)
			if !is {
				return nil
			}
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: claim.Namespace, Name: name}}}
		})).
		WatchesRawSource(&r.wakes).
		WithOptions(options).
		Complete(r)
}

// setUpSamplers adds the samplers to the manager, which runs them on the leader.
func (r *MemcachedReconciler) setUpSamplers(mgr ctrl.Manager) error {
	var err error
	if r.Progress != nil {
		r.progress = ask.NewDrainers(r.Progress, r.wakes.now)
		err = mgr.Add(manager.RunnableFunc(r.progress.Start))
	}
	if r.Memory != nil {
		r.room = ask.NewMembers(r.Memory, r.wakes.now)
		err = errors.Join(err, mgr.Add(manager.RunnableFunc(r.room.Start)))
	}
	if r.Rings != nil {
		r.rings = ask.NewRouters(r.Rings, r.wakes.now)
		err = errors.Join(err, mgr.Add(manager.RunnableFunc(r.rings.Start)))
	}
	if r.Steps != nil {
		r.steps = ask.NewSteps(r.Steps, r.wakes.now)
		err = errors.Join(err, mgr.Add(manager.RunnableFunc(r.steps.Start)))
	}
	if r.Nodes != nil {
		r.nodes = ask.NewNodes(r.Nodes, r.wakes.now)
		err = errors.Join(err, mgr.Add(manager.RunnableFunc(r.nodes.Start)))
	}
	if r.Certificates != nil {
		r.certificates = ask.NewCertificates(r.Certificates, r.wakes.now)
		err = errors.Join(err, mgr.Add(manager.RunnableFunc(r.certificates.Start)))
	}
	return err
}

// notItsStatus passes changes that another client may have made to an object that we have applied,
// but not changes of its status.
var notItsStatus = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})

// deletionBegan passes the update that sets the deletionTimestamp, and later updates such as
// changes of finalizers.
var deletionBegan = predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })

// clusterOf maps a pod or a claim to its cluster.
func clusterOf(_ context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range identity.ClusterName(o) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}})
	}
	return requests
}
