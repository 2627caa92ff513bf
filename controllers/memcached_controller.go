// Package controllers reconciles Memcached clusters: observe, plan, apply,
// status. What is decided lives in internal/plan, what objects look like in
// internal/build, what a person is told in internal/status; this package reads
// (observe.go), writes (apply.go) and checks live before it does what can't be
// undone (guard.go).
package controllers

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

// Options are what the operator's deployment decides about the objects.
type Options = build.Options

// ProgressReader returns the last progress line of a drainer's pod, or nil.
type ProgressReader func(ctx context.Context, namespace, pod string) (*contract.Progress, error)

// MemcachedReconciler reconciles Memcached clusters.
type MemcachedReconciler struct {
	// Client reads from the cache and writes.
	client.Client
	// Live reads from the API server, before what can't be undone.
	Live client.Reader
	// Events tells people what was done.
	Events events.EventRecorder
	// Progress of running drains; nil shows none.
	Progress ProgressReader
	// Memory of the members; nil lets every scale-down begin.
	Memory MemoryReader
	// Metrics of what was done; nil counts nothing.
	Metrics *Metrics
	Options Options
	Clock   clock.PassiveClock

	written written
	matches matches
	// monitors has what became of each ServiceMonitor; refusals, why no volume may
	// grow: a cluster's are all of one class, and one refusal is that of all.
	monitors answers[status.Monitoring]
	refusals answers[string]
	// bindings has the Secrets of spec.binding that were as wanted.
	bindings answers[bound]
}

// progressInterval is how often the progress of a running drain is read: it is
// the one thing that no watch can tell. Each time costs a read, and a write of
// the status. Who watches sees it move every two seconds: some of that goes to
// the read and the write.
const progressInterval = 1500 * time.Millisecond

// foreignInterval is how often an object that is in the way is looked for.
const foreignInterval = 5 * time.Second

// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/status,verbs=get;patch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings one cluster a step closer to its spec.
func (r *MemcachedReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster, err := r.cluster(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cluster == nil {
		r.written.forget(req.NamespacedName)
		r.matches.forget(req.NamespacedName)
		r.monitors.forget(req.NamespacedName)
		r.refusals.forget(req.NamespacedName)
		r.bindings.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	cluster = r.written.newest(cluster)
	version := cluster.ResourceVersion
	seen, err := r.observe(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := seen.plan()
	if err := r.foretell(ctx, seen, p); err != nil {
		return result(seen, 0, nil, err)
	}
	applyErr := r.apply(ctx, seen, p)
	wait, statusErr := r.writeStatus(ctx, seen, p, applyErr)
	if cluster.ResourceVersion != version {
		r.written.note(cluster)
	}
	if wait == 0 {
		wait = seen.drainerStarts(r.Clock.Now())
	}
	if p.SizeBlocked == plan.ByShortage && (wait == 0 || wait > roomInterval) {
		wait = roomInterval
	}
	if wait == 0 && volumesWait(&p) {
		wait = volumeInterval
	}
	return result(seen, wait, applyErr, statusErr)
}

// result: wait for an event where one will come, for time where none will; wait
// is when a status is due that was not written yet.
func result(seen *observed, wait time.Duration, applyErr, statusErr error) (ctrl.Result, error) {
	if errors.Is(applyErr, errRefused) && statusErr == nil {
		return ctrl.Result{RequeueAfter: refusedInterval}, nil
	}
	if err := errors.Join(applyErr, statusErr); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: refusedInterval}, nil
		}
		if taken := (*status.NameTakenError)(nil); errors.As(err, &taken) {
			return ctrl.Result{RequeueAfter: foreignInterval}, nil // in the condition; we watch only what is ours
		}
		return ctrl.Result{}, err
	}
	if seen.monitored != status.NotMonitored && (wait == 0 || wait > monitorInterval) {
		wait = monitorInterval
	}
	if again := bindingAgain(seen.binding); again != 0 && (wait == 0 || wait > again) {
		wait = again
	}
	if seen.growthRefused != "" && (wait == 0 || wait > growthInterval) {
		wait = growthInterval
	}
	if seen.drainerRuns() && (wait == 0 || wait > progressInterval) {
		wait = progressInterval
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// foretell writes, ahead of a roll-out, what people may want to stop it for. All else
// of status follows what was done.
func (r *MemcachedReconciler) foretell(ctx context.Context, seen *observed, p plan.Plan) error {
	c := status.Foretold(seen.statusInput(p, nil, r.Clock.Now()))
	if c == nil || seen.absent {
		return nil
	}
	before := seen.cluster.DeepCopy()
	meta.SetStatusCondition(&seen.cluster.Status.Conditions, *c)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(r.Status().Patch(ctx, seen.cluster, patch))
}

// writeStatus writes what Compute returns, if it differs, or tells how long that
// can wait.
func (r *MemcachedReconciler) writeStatus(
	ctx context.Context, seen *observed, p plan.Plan, applyErr error,
) (wait time.Duration, err error) {
	if seen.absent || seen.finalizerRemoved {
		return 0, nil
	}
	if errors.Is(applyErr, errRefused) || apierrors.IsConflict(applyErr) {
		applyErr = nil // the cache was behind; the next reconcile knows better
	}
	before := seen.cluster.DeepCopy()
	now, key := r.Clock.Now(), client.ObjectKeyFromObject(before)
	seen.cluster.Status = status.Compute(seen.statusInput(p, applyErr, now))
	if equality.Semantic.DeepEqual(before.Status, seen.cluster.Status) {
		r.written.noteStatus(before, now)
		return 0, nil
	}
	if wait := r.written.statusDue(key, &before.Status, &seen.cluster.Status, now); wait > 0 {
		seen.cluster.Status = before.Status
		return wait, nil
	}
	// Under a lock: lastDrains is a list, and one from a cache that is behind
	// would take the place of a longer one.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, seen.cluster, patch); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	r.written.noteStatus(seen.cluster, now)
	r.announce(before, seen.cluster)
	r.Metrics.failed(before.Status.Drains, seen.cluster.Status.Drains, &p)
	r.Metrics.placementFailed(&before.Status, &seen.cluster.Status)
	return 0, nil
}

// SetupWithManager registers the controller, its watches and its indexes.
func (r *MemcachedReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	if err := indexByCluster(mgr); err != nil {
		return err
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(clusterOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("memcached").
		For(&cachev1alpha1.Memcached{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, deletionBegan))).
		Owns(&appsv1.StatefulSet{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(notItsStatus)).
		Owns(&batchv1.Job{}).
		Watches(&corev1.Pod{}, byLabel).
		Watches(&corev1.PersistentVolumeClaim{}, byLabel).
		WithOptions(options).
		Complete(r)
}

// notItsStatus passes what somebody may have changed about an object that we
// have applied, and not what its controller says of it.
var notItsStatus = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})

// deletionBegan passes the update that sets the deletionTimestamp, and the one
// that changes finalizers.
var deletionBegan = predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })

// clusterOf maps a pod or claim to its cluster by label.
func clusterOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[cachev1alpha1.LabelInstance]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}
