package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/apply"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// StatefulSetDrainReconciler drains the volumes of any StatefulSet's departed members.
type StatefulSetDrainReconciler struct {
	// Client reads StatefulSetDrains from the cache and writes.
	client.Client
	// Live reads from the API server, before steps that can't be undone.
	Live client.Reader
	// Clients watch the StatefulSets that are named, and their pods, and read drainers' logs.
	Clients kubernetes.Interface
	// Unlabelled are claims that no cache of labelled objects has.
	Unlabelled *read.UnlabelledClaims
	// Namespaces are those that the manager watches; none for all.
	Namespaces []string
	// Events records events for people, Metrics counts.
	Events  events.EventRecorder
	Metrics *Metrics
	Clock   clock.PassiveClock
	// Installation is the name of this installation of the operator: it manages the StatefulSetDrains that no
	// other installation has. Without a name, other installations are ignored.
	Installation string

	installations remembered.Installations

	objects    cache.Cache
	target     *observe.Watches
	progress   *ask.Logs[observe.Progress]
	wakes      wakes
	seen       remembered.Names
	obstructed remembered.Obstructions
	looked     observe.Looked
	notCreated read.MissingPods
	woken      remembered.ByObject[observe.Woken]
	made       remembered.Matches
	dryRuns    apply.DryRuns
	refused    remembered.Refusals
	statuses   remembered.Statuses
	// returned are claims whose members have returned, until a status says so.
	returned remembered.ByObject[[]action.ClaimRef]
}

// +kubebuilder:rbac:groups=cache.example.com,resources=statefulsetdrains,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cache.example.com,resources=statefulsetdrains/status,verbs=patch
// +kubebuilder:rbac:groups=cache.example.com,resources=statefulsetdrains/finalizers,verbs=update

// Reconcile takes the claims of one StatefulSet a step further.
func (r *StatefulSetDrainReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d := &cachev1alpha1.StatefulSetDrain{}
	if err := r.Get(ctx, req.NamespacedName, d); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
			r.installations.Forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	mine, look, err := r.installed().manages(ctx, d, d.DeletionTimestamp != nil)
	if r.installed().tells(d, d.Status.Conditions, err) {
		return r.unobserved(ctx, d, err)
	}
	if err != nil || !mine {
		r.forget(req.NamespacedName)
		return leftAlone(look, err)
	}
	reader := r.reader()
	s, err := reader.Observe(ctx, d)
	if err != nil {
		return r.unobserved(ctx, d, err)
	}
	if s == nil {
		// The watches report when they have begun. Without the right to watch they never begin.
		return r.unobserved(ctx, d, read.Refuse("the watches of StatefulSet %s and of its pods have not begun; the operator's log says why", d.Spec.StatefulSetName))
	}
	template := r.templateRefused(ctx, s)
	s.AtMost(look)
	in := s.Input(template)
	p := stsdrain.Decide(&in)
	applier := &apply.Applier{Client: r.Client, Reader: reader, Events: r.Events, Clock: r.Clock, Made: &r.made}
	done, applyErr := applier.Apply(ctx, s, &p, template)
	r.count(s, &done)
	statusErr := r.writeStatus(ctx, s, &in, &p, &done, applyErr)
	return r.result(s, &p, applyErr, statusErr)
}

// reader returns a reader; the reconciler keeps its state.
func (r *StatefulSetDrainReconciler) reader() *observe.Reader {
	return &observe.Reader{
		Cache: r.Client, Objects: r.objects, See: r.target.See, Live: r.Live, Clock: r.Clock, Seen: &r.seen, Obstructed: &r.obstructed,
		Unlabelled: r.Unlabelled, Looked: &r.looked, NotCreated: &r.notCreated, Woken: &r.woken, Progress: r.progress,
	}
}

// templateRefused says why no Job can be made of the template, or spec.receipt can't be used; empty if
// all is well, or if it can't be found out now.
func (r *StatefulSetDrainReconciler) templateRefused(ctx context.Context, s *observe.State) string {
	if why := observe.RuleRefused(s.Drain); why != "" {
		return why
	}
	if s.Set == nil || s.Drain.DeletionTimestamp != nil {
		return ""
	}
	why, wait, err := r.dryRuns.Check(write.Because(ctx, "a dry run of the template"), r.Client, s.Drain, s.Set, s.Now)
	if err != nil {
		logf.FromContext(ctx).V(1).Info("Can't try the template", "error", err.Error())
	}
	s.AtMost(wait)
	return why
}

// Watched is how many watches of StatefulSets, and of their pods, are open.
func (r *StatefulSetDrainReconciler) Watched() int { return r.target.Watched() }

// Objects is the cache of the claims, Jobs and drainers' pods of StatefulSetDrains.
func (r *StatefulSetDrainReconciler) Objects() client.Reader { return r.objects }

// forget forgets a StatefulSetDrain that is gone, or that another installation manages.
func (r *StatefulSetDrainReconciler) forget(key client.ObjectKey) {
	r.target.Forget(key)
	r.progress.Forget(key)
	r.seen.Forget(key)
	r.obstructed.Forget(key)
	r.looked.Forget(key)
	r.notCreated.Forget(key)
	r.woken.Forget(key)
	r.made.Forget(key)
	r.dryRuns.Forget(key)
	r.refused.Forget(key)
	r.statuses.Forget(key)
	r.returned.Forget(key)
}

// ending ends this reconcile.
func (r *StatefulSetDrainReconciler) ending() *ending {
	return &ending{Client: r.Client, Events: r.Events, now: r.Clock.Now(), statuses: &r.statuses, refused: &r.refused, wakes: &r.wakes}
}

// unobserved ends a reconcile that could not read everything.
func (r *StatefulSetDrainReconciler) unobserved(ctx context.Context, d *cachev1alpha1.StatefulSetDrain, why error) (ctrl.Result, error) {
	end := r.ending()
	return end.unobserved(ctx, d, why, func() { stsdrain.Unobserved(d, why, end.now) })
}

// writeStatus writes the status if it differs and can't wait.
func (r *StatefulSetDrainReconciler) writeStatus(ctx context.Context, s *observe.State, in *stsdrain.Observed, p *stsdrain.Plan, done *apply.Done, applyErr error) error {
	if done.FinalizerRemoved {
		return nil
	}
	end, key := r.ending(), client.ObjectKeyFromObject(s.Drain)
	var returned []action.ClaimRef
	r.returned.Use(key, func(kept *[]action.ClaimRef) {
		*kept = append(*kept, done.Returned...)
		returned = slices.Clone(*kept)
	})
	input := &stsdrain.StatusInput{
		Drain: s.Drain, Observed: in, Plan: p, Progress: counts(s), Returned: returned, OtherOperator: r.installed().other(s.Drain),
		Rows: claims.Rows{Now: s.Now, Marked: done.Marked, Started: s.Started(), Waits: s.Waits, Member: s.Member},
	}
	if !passes(applyErr) {
		input.Err = withheld(applyErr, &p.Work)
	} else {
		input.Err = withheld(nil, &p.Work)
		if end.refusedFor(s.Drain, applyErr) >= claims.StuckAfter {
			input.Refused = applyErr.Error()
		}
	}
	before := s.Drain.DeepCopy()
	s.Drain.Status = stsdrain.ComputeStatus(input)
	s.AtMost(input.DueIn())
	written, wait, err := end.write(ctx, before, s.Drain, remembered.DrainChange(&before.Status, &s.Drain.Status))
	s.AtMost(wait)
	if err == nil && wait == 0 {
		r.returned.Forget(key)
	}
	if !written {
		return err
	}
	r.announce(before, s.Drain)
	r.Metrics.DrainStatusWritten(&before.Status, &s.Drain.Status, p.Drains)
	return nil
}

// announce records events for changes for the worse, after the status with them was written.
func (r *StatefulSetDrainReconciler) announce(before, after *cachev1alpha1.StatefulSetDrain) {
	for _, f := range claims.NewlyFailed(before.Status.Drains, after.Status.Drains, stsdrain.RowOf) {
		row := stsdrain.RowOf(&f)
		related := &corev1.PersistentVolumeClaim{}
		related.Namespace, related.Name = after.Namespace, row.Claim
		r.Events.Eventf(after, related, corev1.EventTypeWarning, cachev1alpha1.ReasonDrainFailed, "Drain", "%s",
			claims.BoundMessage(fmt.Sprintf("member %d: %s: %s", f.Ordinal, f.Reason, f.Message)))
	}
	announceDegraded(r.Events, before, after)
}

// counts are what drainers have counted, for the status.
func counts(s *observe.State) map[types.UID]stsdrain.Count {
	all := map[types.UID]stsdrain.Count{}
	for claim, p := range s.Progress {
		all[claim] = stsdrain.Count(p)
	}
	return all
}

// result ends a reconcile that has observed everything.
func (r *StatefulSetDrainReconciler) result(s *observe.State, p *stsdrain.Plan, applyErr, statusErr error) (ctrl.Result, error) {
	if !p.Wake.IsZero() {
		s.AtMost(max(p.Wake.Sub(s.Now), time.Millisecond))
	}
	for i := range p.Drains {
		if p.Drains[i].Reason == claims.SettingAside {
			s.AtMost(apply.VolumeInterval)
		}
	}
	if len(p.DeletedClaims) > 0 {
		s.AtMost(read.VolumeInterval)
	}
	return r.ending().result(s.Drain, &s.Requeue, applyErr, statusErr)
}

// SetupWithManager adds the controller and its watches to the manager.
func (r *StatefulSetDrainReconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	var err error
	if r.objects, err = observe.NewObjects(mgr, r.Namespaces...); err != nil {
		return err
	}
	r.Metrics.WithClaimsOf(r.objects)
	r.target = observe.NewWatches(r.Clients, r.wakes.now)
	r.progress = ask.NewLogs(ask.LogOptions[observe.Progress]{
		Read: ask.ReadLogs(r.Clients, observe.ParseProgress), Changed: r.wakes.now,
		Container: func(pod *corev1.Pod) string { return pod.Annotations[cachev1alpha1.AnnotationContainer] },
	})
	if err := errors.Join(mgr.Add(manager.RunnableFunc(r.target.Start)), mgr.Add(manager.RunnableFunc(r.progress.Start))); err != nil {
		return err
	}
	r.Client = write.Logged(r.Client)
	if options.RateLimiter == nil {
		options.RateLimiter = newBackoff()
	}
	left := &orphans{Client: r.Client, Live: r.Live, Unlabelled: r.Unlabelled, Events: r.Events, Clock: r.Clock}
	if err := left.setUp(mgr, options); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("statefulsetdrain").
		For(&cachev1alpha1.StatefulSetDrain{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, deletionBegan, askedInStatus))).
		Watches(&cachev1alpha1.StatefulSetDrain{}, handler.EnqueueRequestsFromMapFunc(r.siblings), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](r.objects, &corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(drainOf))).
		WatchesRawSource(source.Kind[client.Object](r.objects, &batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(drainOf))).
		WatchesRawSource(source.Kind[client.Object](r.objects, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(drainOf))).
		WatchesRawSource(r.Unlabelled.Source(r.drainsOf)).
		WatchesRawSource(&r.wakes).
		WithOptions(options).
		Complete(r)
}

// siblings are the other StatefulSetDrains of the same StatefulSet: when the oldest goes, the next one
// takes over.
func (r *StatefulSetDrainReconciler) siblings(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	var list cachev1alpha1.StatefulSetDrainList
	d, is := o.(*cachev1alpha1.StatefulSetDrain)
	if !is || r.List(ctx, &list, client.InNamespace(d.Namespace)) != nil {
		return nil
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Name != d.Name && o.Spec.StatefulSetName == d.Spec.StatefulSetName {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return requests
}

// drainsOf are the StatefulSetDrains that a claim may belong to by its name.
func (r *StatefulSetDrainReconciler) drainsOf(ctx context.Context, claim client.ObjectKey) (requests []reconcile.Request) {
	var list cachev1alpha1.StatefulSetDrainList
	if r.List(ctx, &list, client.InNamespace(claim.Namespace)) != nil {
		return nil
	}
	for i := range list.Items {
		if _, is := stsdrain.ParseClaimName(list.Items[i].Spec.StatefulSetName, claim.Name); is {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// drainOf maps an object to the StatefulSetDrain that its label names.
func drainOf(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[cachev1alpha1.LabelStatefulSetDrain]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
}
