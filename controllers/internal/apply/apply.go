// Package apply carries out plans. Only apply and controllers/uninstall write the objects of a
// cluster. Before a step that can't be undone, apply reads live and asks
// package plan once more.
package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/receipt"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/rollout"
	"example.com/memcached-operator/controllers/internal/status"
	"example.com/memcached-operator/drainer/contract"
)

// Applier carries out plans. The state that it keeps between plans belongs to the reconciler.
type Applier struct {
	client.Client
	Reader  *observe.Reader
	Events  events.EventRecorder
	Options build.Options
	Clock   clock.PassiveClock
	// Installation is the name of the operator's installation; empty if it has none.
	Installation string
	// Turns has the turns of the roll-outs that an upgrade of the operator begins.
	Turns *rollout.Turns
	// RouterTurns has the turns of the routers' roll-outs.
	RouterTurns *rollout.Turns
	// Matches are the objects that were found to be as wanted. The objects of Bindings and Monitors
	// are not watched.
	Matches  *remembered.Matches
	Bindings *Bindings
	Monitors *Monitors
}

// Done is what was written, for the status and the metrics, because no watch has reported it yet.
type Done struct {
	// Drains and Moves are the Jobs that were created.
	Drains, Moves []batchv1.Job
	// Marked has the claims that got the leaving mark, and when.
	Marked map[types.UID]time.Time
	// Recorded are the receipts of drains that were recorded, Released the released claims, and
	// Moved the moves that were recorded; the receipt of a skipped move is nil.
	Recorded []action.RecordReceipt
	Released []action.ReleaseClaim
	Moved    []*action.Receipt
	// MembersWritten: the StatefulSet or the Deployment was written. FinalizerRemoved: the
	// Memcached's finalizer was removed.
	MembersWritten, FinalizerRemoved bool
	// ListWritten: the clients' list is now as planned.
	ListWritten bool
	// Listed are the members that the list in DNS has; empty if it was not written.
	Listed []build.Endpoint
	// GrowthRefused is why the API server refuses to let volumes grow; empty if it
	// doesn't.
	GrowthRefused string
	// Monitored is the state of the ServiceMonitor, and Binding that of the Secret of spec.binding;
	// nil if the Secret was not read.
	Monitored status.Monitoring
	Binding   *status.Binding
	// RollOutWaits is why the change that an upgrade makes to the members waits; empty if nothing
	// waits.
	RollOutWaits string
	// SizeChanged is what admission made of the number of members or routers; empty if it
	// changed none.
	SizeChanged string
	// Waits is when to reconcile again if no event comes earlier.
	Waits observe.Waits
}

// run carries out one plan. A step uses its action and live reads. The cache only tells whether an
// object is already as wanted, so that it is not written again.
type run struct {
	*Applier
	cluster *cachev1alpha1.Memcached
	// present has the objects as they are in the cache.
	present *observe.Objects
	// ports are where the members listen.
	ports build.Ports
	// now is the time of everything that the plan writes.
	now time.Time
	// view is the last live read before steps that can't be undone; nil if it no longer holds.
	view *observe.View
	// unlabelled and unadopted are objects of the cluster that a guard has found and that the cache
	// can't see.
	unlabelled []client.Object
	unadopted  []action.ClaimRef
	// listServiceTaken: another owner's object has the name of the list's Service.
	listServiceTaken bool
	// marked are the claims that were marked since view was read.
	marked []*corev1.PersistentVolumeClaim
	// owns: a live read has shown that the Memcached isn't deleted.
	owns bool
	// first: this run has added the cluster's finalizer, which comes before all other writes.
	// listMade is the clients' list that this run has created, or nil.
	first    bool
	listMade *action.WriteList
	// list is the list in DNS after this run's writes, and its version; nil if no member has been
	// on it yet.
	list *contract.List
	// table is the number of the routers' table; 0 if there is none.
	table int64
	done  Done
}

func (a *Applier) run(cluster *cachev1alpha1.Memcached, present *observe.Objects) *run {
	return &run{Applier: a, cluster: cluster, present: present, ports: present.Ports(cluster), now: a.Clock.Now(), done: Done{Marked: map[types.UID]time.Time{}}}
}

// Apply takes the steps of a plan in their order. A step that fails stops those that depend on it (action.Class).
func (a *Applier) Apply(ctx context.Context, cluster *cachev1alpha1.Memcached, present *observe.Objects, actions []action.Action) (Done, error) {
	r := a.run(cluster, present)
	r.forgetPods()
	r.forgetJobs(actions)
	err := r.takeSteps(ctx, actions)
	if unlabelled := r.labelFound(ctx); unlabelled != nil {
		err = worse(err, unlabelled)
	}
	return r.done, err
}

func (r *run) takeSteps(ctx context.Context, actions []action.Action) error {
	var failed error
	membersFailed, claimsFailed := false, map[types.UID]bool{}
	for _, step := range actions {
		kind := action.KindOf(step)
		if kind.Class == action.Members && membersFailed || kind.Claim != "" && claimsFailed[kind.Claim] {
			// What depends on a step that is left out is left out, too: no member ends without its mark.
			membersFailed = membersFailed || kind.Class == action.Members
			continue
		}
		if kind.ReadsAgain {
			r.view = nil
		}
		if _, marks := step.(action.MarkLeaving); !marks {
			r.addMarks()
		}
		if kind.Owns && !r.first {
			r.owns = false
		}
		err := r.takeStep(Because(ctx, step.String()), step)
		if kind.ReadsAgain {
			r.view = nil
		}
		r.noteOutcome(kind.Claim, err)
		if err == nil {
			continue
		}
		if errors.Is(err, observe.ErrRefused) {
			logf.FromContext(ctx).V(1).Info("Refused a step", "step", step.String(), "reason", err.Error())
		}
		failed = worse(failed, fmt.Errorf("%s: %w", step, err))
		r.view = nil // a failed step may have added to the view
		switch {
		case kind.Class == action.Members:
			membersFailed = true
		case ctx.Err() != nil, kind.Class == action.Cluster, kind.Class == action.Claim && kind.Claim == "":
			return failed
		case kind.Class == action.Claim:
			claimsFailed[kind.Claim] = true
		}
	}
	return failed
}

// worse returns the more severe error: a failure comes before a name that is taken, which is tried
// again less often, and a taken name before a refusal. If both are equally severe, it returns the first.
func worse(first, second error) error {
	if first == nil || severity(second) > severity(first) {
		return second
	}
	return first
}

func severity(err error) int {
	taken := (*identity.NameTakenError)(nil)
	switch {
	case errors.Is(err, observe.ErrRefused):
		return 0
	case errors.As(err, &taken):
		return 1
	}
	return 2
}

func (r *run) takeStep(ctx context.Context, step action.Action) error {
	switch a := step.(type) {
	case action.AddClusterFinalizer:
		return r.patchFinalizer(ctx, controllerutil.AddFinalizer)
	case action.RemoveClusterFinalizer:
		return r.removeClusterFinalizer(ctx)
	case action.ApplyService:
		return r.applyService(ctx)
	case action.ApplyListService:
		return r.applyListService(ctx)
	case action.WriteList:
		return r.writeList(ctx, a)
	case action.WriteEndpoints:
		return r.writeEndpoints(ctx, a)
	case action.ApplyDiscovery:
		return r.applyDiscovery(ctx)
	case action.TellMember:
		return r.tellMember(ctx, a)
	case action.ApplyNetworkPolicy:
		return r.applyNetworkPolicy(ctx)
	case action.WriteBinding:
		return r.writeBinding(ctx, a)
	case action.ApplyStatefulSet:
		return r.applyStatefulSet(ctx, a)
	case action.ApplyDeployment:
		return r.applyDeployment(ctx, a)
	case action.ApplyBudget:
		return r.applyBudget(ctx)
	case action.ApplyServiceMonitor:
		return r.applyServiceMonitor(ctx)
	case action.ApplyMemberService:
		return r.applyMemberService(ctx, a.Ordinal)
	case action.RetireMemberService:
		return r.retireMemberService(ctx, a)
	case action.DeleteMemberService:
		return r.deleteMemberService(ctx, a)
	case action.DeleteMembers:
		return r.deleteMembers(ctx, a)
	case action.DeleteJob:
		return r.deleteJob(ctx, a)
	case action.WriteTable:
		return r.writeTable(ctx, a)
	case action.TellRouter:
		return r.tellRouter(ctx, a)
	case action.ApplyRouters:
		return r.applyRouters(ctx, a.Part)
	}
	return r.takeClaimStep(ctx, step)
}

// takeClaimStep takes a step about a claim, its drain, its volume, or its member's
// move.
func (r *run) takeClaimStep(ctx context.Context, step action.Action) error {
	switch a := step.(type) {
	case action.AddClaimFinalizer:
		_, err := r.patchClaim(ctx, r.cluster, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
			controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
			return nil
		})
		return err
	case action.MarkLeaving:
		return r.markLeaving(ctx, a)
	case action.CreateDrain:
		return r.createDrain(ctx, a)
	case action.RecordReceipt:
		return r.recordReceipt(ctx, a)
	case action.CountFailure:
		return r.countFailure(ctx, a)
	case action.ClearRetry:
		return r.clearRetry(ctx, a.Claim)
	case action.CreateMove:
		return r.createMove(ctx, a)
	case action.BeginMove:
		return r.beginMove(ctx, a)
	case action.RecordMoved:
		return r.recordMoved(ctx, a)
	case action.ClearMoveRetry:
		return r.clearRequest(ctx, a.Claim, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveRetry)
	case action.DeleteClaim:
		return r.deleteClaim(ctx, a)
	case action.SetAside:
		return r.setAside(ctx, a.Claim)
	case action.ReserveVolume:
		return r.reserveVolume(ctx, a)
	case action.CreateAside:
		return r.createAside(ctx, a)
	case action.ReturnVolume:
		return r.returnVolume(ctx, a)
	case action.SkipAside:
		return r.skipAside(ctx, a)
	case action.GrowClaim:
		return r.growClaim(ctx, a)
	case action.ReleaseClaim:
		return r.releaseClaim(ctx, a)
	}
	return fmt.Errorf("unknown action %T", step)
}

func (r *run) createDrain(ctx context.Context, a action.CreateDrain) error {
	job := build.DrainJob(r.cluster, r.Options, r.ports, a.Claim.Name, a.Claim.UID, a.Survivors.Count, a.NeverStarted)
	if err := r.madeBefore(ctx, job); err != nil {
		return err
	}
	if err := r.mayDrain(ctx, a); err != nil {
		return err
	}
	if err := r.createJob(ctx, job); err != nil {
		return err
	}
	r.done.Drains = append(r.done.Drains, *job)
	r.view.Jobs = append(r.view.Jobs, observe.PlanJob(job, nil))
	r.claimEvent(r.cluster, a.Claim, "DrainStarted", "Drain", "Job %s drains claim %s into %d members", job.Name, a.Claim.Name, a.Survivors.Count)
	return nil
}

// obstructedFor is how long no step about a claim is tried again after one was refused.
const obstructedFor = 15 * time.Second

// noteOutcome remembers that the API server has refused a step about the claim, if it would refuse
// another attempt, too. Meanwhile other claims have their turn.
func (r *run) noteOutcome(about types.UID, err error) {
	key, taken := client.ObjectKeyFromObject(r.cluster), (*identity.NameTakenError)(nil)
	switch is := errors.As(err, &taken); {
	case about == "" || r.Reader.Obstructed == nil:
	case err == nil:
		r.Reader.Obstructed.Passed(key, about)
	case is || apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		r.Reader.Obstructed.Note(key, about, remembered.Obstruction{Why: err.Error(), Taken: is, Until: r.now.Add(obstructedFor)})
	}
}

// kindJob with the name of a Job is the key in Matches of a Job that this process has created.
const kindJob = "Job "

// forgetJobs forgets the Jobs that the plan no longer wants to create.
func (r *run) forgetJobs(actions []action.Action) {
	wanted := map[string]bool{}
	for _, step := range actions {
		if drain, is := step.(action.CreateDrain); is {
			wanted[kindJob+build.DrainName(drain.Claim.Name, drain.Claim.UID)] = true
		}
	}
	r.Matches.Drop(r.cluster, func(kind string) bool { return strings.HasPrefix(kind, kindJob) && !wanted[kind] })
}

// madeBefore refuses to create a Job again that exists and is not in the cache yet. One read of the
// Job replaces the whole live read of the guard.
func (r *run) madeBefore(ctx context.Context, job *batchv1.Job) error {
	made := kindJob + job.Name
	if !r.Matches.Has(r.cluster, made, &r.cluster.ObjectMeta, 0) {
		return nil
	}
	r.Matches.Drop(r.cluster, func(kind string) bool { return kind == made })
	live, err := observe.Get[batchv1.Job](ctx, r.Reader.Live, client.ObjectKeyFromObject(job))
	if err != nil || live == nil || !identity.OwnJob(r.cluster, live) {
		return err
	}
	return observe.Refuse("Job %s exists already: the cache is stale", job.Name)
}

// createJob creates the Job. If its name is taken, either the Job is the cluster's own, and the
// cache is stale or can't see it because it lacks its label; or it belongs to another owner.
func (r *run) createJob(ctx context.Context, job *batchv1.Job) error {
	err := r.Create(ctx, job)
	if err == nil && r.cluster.UID != "" {
		r.Matches.Note(r.cluster, kindJob+job.Name, &r.cluster.ObjectMeta, 0)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := observe.Get[batchv1.Job](ctx, r.Reader.Live, client.ObjectKeyFromObject(job))
	if err != nil {
		return err
	}
	switch {
	case live == nil:
	case !identity.OwnJob(r.cluster, live):
		return identity.NameTaken(live)
	default:
		if err := r.putLabel(ctx, live, r.cluster.Name); err != nil {
			return err
		}
	}
	return observe.Refuse("Job %s exists already: the cache is stale", job.Name)
}

func (r *run) recordReceipt(ctx context.Context, a action.RecordReceipt) error {
	if err := a.Receipt.AddsUp(string(a.Claim.UID)); err != nil {
		return fmt.Errorf("refuse to record the receipt: %w", err)
	}
	recorded, err := r.annotateClaim(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationReceipt, a.Receipt.Text)
		return nil
	})
	if recorded {
		r.claimEvent(r.cluster, a.Claim, "Drained", "Drain", "claim %s: %s", a.Claim.Name, summary(a.Receipt))
		r.done.Recorded = append(r.done.Recorded, a)
	}
	return err
}

func summary(of *action.Receipt) string {
	r := receipt.Numbers(of)
	return fmt.Sprintf("%d items found, %d added, %d already present, %d expired, %d invalidated, %d bytes",
		r.Found, r.Added, r.AlreadyPresent, r.Expired, r.Invalidated, r.Bytes)
}

// patchFinalizer changes the Memcached's finalizers under an optimistic lock. With the finalizer it
// also writes which installation of the operator manages the cluster.
func (r *run) patchFinalizer(ctx context.Context, change func(client.Object, string) bool) error {
	before := r.cluster.DeepCopy()
	if !change(r.cluster, cachev1alpha1.ClusterFinalizer) {
		return nil
	}
	if r.Installation != "" && len(r.cluster.Finalizers) > len(before.Finalizers) {
		metav1.SetMetaDataAnnotation(&r.cluster.ObjectMeta, cachev1alpha1.AnnotationOperator, r.Installation)
	}
	err := r.Patch(ctx, r.cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil && len(r.cluster.Finalizers) > len(before.Finalizers) {
		r.first, r.owns = true, true // the lock has shown that the Memcached isn't deleted
	}
	return err
}

func (r *run) removeClusterFinalizer(ctx context.Context) error {
	if r.cluster.UID == "" {
		return nil // the Memcached is gone
	}
	if err := r.mayRemoveClusterFinalizer(ctx); err != nil {
		return err
	}
	if err := r.patchFinalizer(ctx, controllerutil.RemoveFinalizer); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.done.FinalizerRemoved = true
	return nil
}

// markLeaving writes the time at which the member was told to leave, and the decision about its
// volume. It never replaces an earlier mark, because the cache may be stale. Members that leave
// together have the same time and number.
func (r *run) markLeaving(ctx context.Context, a action.MarkLeaving) error {
	claim := a.Claim
	live, err := r.mayMark(ctx, claim)
	if err != nil {
		return err
	}
	now := r.now.UTC().Truncate(time.Second)
	mark := build.LeavingMark(r.cluster, claims.NextLeft(live.Claims), now) // all marks of a plan share the live read
	var after *corev1.PersistentVolumeClaim
	before := false
	marked, err := r.annotateClaim(ctx, claim, func(c *corev1.PersistentVolumeClaim) error {
		after = c
		if _, before = c.Annotations[cachev1alpha1.AnnotationLeaving]; !before {
			for key, value := range mark {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
			}
			delete(c.Annotations, cachev1alpha1.AnnotationAttempts) // the count was of failed moves
			if a.Unmoved {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationUnmoved, "true")
			}
			if a.NeverStarted {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationNeverStarted, "true")
			}
		}
		return nil
	})
	if marked {
		r.done.Marked[claim.UID] = now
	}
	if err == nil && (marked || before) {
		r.marked = append(r.marked, after)
	}
	return err
}

// addMarks adds the marks that were written to the live read, all at once: marks don't affect other
// marks.
func (r *run) addMarks() {
	if r.view != nil {
		for _, marked := range r.marked {
			c, ours := observe.PlanClaim(r.cluster.Name, marked)
			if i := slices.IndexFunc(r.view.Claims, func(before claims.Claim) bool { return before.UID == c.UID }); ours && i >= 0 {
				r.view.Claims[i] = c
			}
		}
	}
	r.marked = nil
}

// clearRetry removes the request when the retry has begun. A person who asks for a retry wants the
// volume drained, even if another policy was decided before.
func (r *run) clearRetry(ctx context.Context, ref action.ClaimRef) error {
	_, err := r.patchClaim(ctx, r.cluster, ref, func(c *corev1.PersistentVolumeClaim) error {
		if c.Annotations[cachev1alpha1.AnnotationDrain] == cachev1alpha1.DrainRetry {
			clearRequestOf(c, cachev1alpha1.AnnotationDrain)
			if was, _ := observe.PlanClaim(r.cluster.Name, c); !was.Decided || was.Policy != claims.Drain {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationPolicy, string(cachev1alpha1.PolicyDrain))
			}
		}
		return nil
	})
	return err
}

func clearRequestOf(c *corev1.PersistentVolumeClaim, annotation string) {
	delete(c.Annotations, annotation)
	delete(c.Annotations, cachev1alpha1.AnnotationAttempts)
}

// clearRequest removes this request of a person, unless another request has replaced it.
func (r *run) clearRequest(ctx context.Context, claim action.ClaimRef, annotation, request string) error {
	_, err := r.patchClaim(ctx, r.cluster, claim, func(c *corev1.PersistentVolumeClaim) error {
		if c.Annotations[annotation] == request {
			clearRequestOf(c, annotation)
		}
		return nil
	})
	return err
}

// countFailure writes the number of failures on the claim, because the failed Jobs are
// deleted.
func (r *run) countFailure(ctx context.Context, a action.CountFailure) error {
	_, err := r.patchClaim(ctx, r.cluster, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationAttempts, fmt.Sprintf("%d/%s", a.Attempts.Failed, a.Attempts.Last))
		return nil
	})
	return err
}

// annotateClaim is patchClaim for changes of annotations that the operator reads. It first patches
// the claim as it is in the cache; the optimistic lock fails if the cache is stale.
func (r *run) annotateClaim(ctx context.Context, ref action.ClaimRef, change func(*corev1.PersistentVolumeClaim) error) (changed bool, err error) {
	cached, err := observe.Get[corev1.PersistentVolumeClaim](ctx, r.Reader.Cache, client.ObjectKey{Namespace: r.cluster.Namespace, Name: ref.Name})
	if err == nil && cached != nil && cached.UID == ref.UID {
		before := cached.DeepCopy()
		if err := change(cached); err == nil && !equality.Semantic.DeepEqual(before, cached) {
			err := r.Patch(ctx, cached, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if err == nil || !apierrors.IsConflict(err) {
				return err == nil, client.IgnoreNotFound(err)
			}
		}
	}
	return r.patchClaim(ctx, r.cluster, ref, change)
}

// patchClaim changes the live claim under an optimistic lock, and tells whether it did. If the
// claim is gone, has been replaced, or has the change already, patchClaim does nothing. Other
// controllers write to claims at the same time (pvc-protection, the volume binder). So after a
// conflict patchClaim reads the claim and decides once more.
func (a *Applier) patchClaim(
	ctx context.Context, cluster *cachev1alpha1.Memcached, ref action.ClaimRef, change func(*corev1.PersistentVolumeClaim) error,
) (changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := a.Reader.LiveClaim(ctx, cluster.Namespace, ref)
		if err != nil || claim == nil {
			return err
		}
		before := claim.DeepCopy()
		if err := change(claim); err != nil || equality.Semantic.DeepEqual(before, claim) {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := a.Patch(ctx, claim, patch); err != nil {
			return client.IgnoreNotFound(err)
		}
		changed = true
		return nil
	})
	return changed, err
}

// deleteObject deletes exactly this object, and its dependents in the background.
func (a *Applier) deleteObject(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(a.Delete(ctx, object,
		client.Preconditions{UID: ptr.To(object.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// deleteMembers deletes the StatefulSet, unless the Memcached was deleted with --cascade=orphan,
// which keeps the members. Then the garbage collector first removes the StatefulSet's owner
// reference, and after that the finalizer orphan; the cache may be stale about both.
func (r *run) deleteMembers(ctx context.Context, a action.DeleteMembers) error {
	live, err := observe.Get[appsv1.StatefulSet](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	switch {
	case err != nil || live == nil || live.UID != a.UID:
		return err
	case r.cluster.UID != "" && metav1.GetControllerOf(live) == nil:
		return observe.Refuse("StatefulSet %s has no controller any more: the cache is stale", live.Name)
	}
	return r.deleteObject(ctx, live)
}

// deleteJob deletes the Job, unless it is being deleted already and the cache is stale.
func (r *run) deleteJob(ctx context.Context, a action.DeleteJob) error {
	job, err := observe.Get[batchv1.Job](ctx, r.Reader.Live, client.ObjectKey{Namespace: r.cluster.Namespace, Name: a.Name})
	if err != nil || job == nil || job.UID != a.UID || job.DeletionTimestamp != nil {
		return err
	}
	if err := r.deleteObject(ctx, job); err != nil {
		return err
	}
	r.tellMoved(a)
	return nil
}

func (r *run) deleteClaim(ctx context.Context, a action.DeleteClaim) error {
	pvc, err := r.Reader.LiveClaim(ctx, r.cluster.Namespace, a.Claim)
	if err != nil || pvc == nil || pvc.DeletionTimestamp != nil {
		return err
	}
	if err := r.mayRelease(ctx, pvc, a.Why); err != nil {
		return err
	}
	if c, _ := observe.PlanClaim(r.cluster.Name, pvc); claims.MayDelete(&c, a.Why) != nil {
		return observe.RefusedBy(claims.MayDelete(&c, a.Why))
	}
	return client.IgnoreNotFound(r.Delete(ctx, pvc,
		client.Preconditions{UID: &pvc.UID, ResourceVersion: &pvc.ResourceVersion}))
}

func (r *run) releaseClaim(ctx context.Context, a action.ReleaseClaim) error {
	released, err := r.patchClaim(ctx, r.cluster, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		if err := r.mayRelease(ctx, c, a.Why); err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(c, cachev1alpha1.ClaimFinalizer)
		return nil
	})
	if released {
		r.done.Released = append(r.done.Released, a)
		r.claimEvent(r.cluster, a.Claim, "Released", "Release", "claim %s is released: %s", a.Claim.Name, a.Why)
	}
	return err
}
