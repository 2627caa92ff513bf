// Package apply carries out plans. Only apply and controllers/uninstall.go write the objects of a
// cluster. Before a step that can't be undone, apply reads live and asks
// package plan once more.
package apply

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/observe"
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
	// denied are the objects whose label the API server denies (Label).
	denied map[types.UID]bool
}

// Done is what was written, for the status and the metrics, because no watch has reported it yet.
type Done struct {
	// Drains, Moves and Warms are the Jobs that were created.
	Drains, Moves, Warms []batchv1.Job
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
	// SizeChanged says how admission has changed the number of members or routers; empty if it has not.
	SizeChanged string
	// Waits is when to reconcile again if no event comes earlier.
	Waits read.Requeue
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
	// withoutLabel says which claims have been denied their label a moment ago, and why.
	withoutLabel []string
	// listServiceTaken: another owner's object has the name of the list's Service.
	listServiceTaken bool
	// marked are the claims that were marked since view was read.
	marked []*corev1.PersistentVolumeClaim
	// markedPods are the pods that were marked since view was read, by their UIDs, with the number of the mark.
	markedPods map[types.UID]int64
	// unlooked: unwanted objects are looked for live (unwanted).
	unlooked bool
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
	// claims writes the cluster's claims and Jobs.
	claims *write.Writer
}

func (a *Applier) run(cluster *cachev1alpha1.Memcached, present *observe.Objects) *run {
	r := &run{Applier: a, cluster: cluster, present: present, ports: present.Ports(cluster), now: a.Clock.Now(), claims: a.writer(cluster)}
	r.claims.Rules, r.claims.Now = rules{r}, r.now
	return r
}

// writer writes the claims and Jobs of a cluster.
func (a *Applier) writer(cluster *cachev1alpha1.Memcached) *write.Writer {
	return &write.Writer{Client: a.Client, Reader: a.Reader.For(cluster), Made: a.Matches, Obstructed: a.Reader.Obstructed}
}

// Apply takes the steps of a plan in their order. A step that fails stops those that depend on it (action.Class).
func (a *Applier) Apply(ctx context.Context, cluster *cachev1alpha1.Memcached, present *observe.Objects, actions []action.Action) (Done, error) {
	r := a.run(cluster, present)
	r.forgetPods()
	r.unlooked = r.looks()
	r.claims.ForgetJobs(actions)
	err := r.takeSteps(ctx, actions)
	if err == nil {
		r.noteLooked()
	}
	if unlabelled := r.labelFound(ctx); unlabelled != nil {
		err = write.Worse(err, unlabelled)
	}
	return r.allDone(), err
}

// allDone returns this run's writes, with their content about claims.
func (r *run) allDone() Done {
	done, about := r.done, &r.claims.Done
	for _, job := range about.Drains {
		done.Drains = append(done.Drains, *job.(*batchv1.Job))
	}
	done.Marked, done.Recorded, done.Released = about.Marked, about.Recorded, about.Released
	return done
}

func (r *run) takeSteps(ctx context.Context, actions []action.Action) error {
	steps := write.Steps{
		Owner: client.ObjectKeyFromObject(r.cluster), Obstructed: r.Reader.Obstructed, Now: r.now,
		Before: r.before, Take: r.takeStep, After: r.after,
	}
	return steps.InOrder(ctx, actions)
}

// before forgets the live reads that are outdated when the step is taken.
func (r *run) before(step action.Action) {
	kind := action.KindOf(step)
	if kind.ReadsAgain {
		r.view = nil
	}
	if _, marks := step.(action.MarkLeaving); !marks {
		r.addMarks()
	}
	if kind.Owns && !r.first {
		r.owns = false
	}
}

// after forgets the live reads that are outdated after the step. A failed step may have added to the view.
func (r *run) after(step action.Action, err error) {
	if err != nil || action.KindOf(step).ReadsAgain {
		r.view = nil
	}
}

func (r *run) takeStep(ctx context.Context, step action.Action) error {
	switch a := step.(type) {
	case action.AddOwnerFinalizer:
		return r.addFinalizer(ctx)
	case action.RemoveOwnerFinalizer:
		return r.removeOwnerFinalizer(ctx)
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
	case action.StartEmpty:
		return r.startEmpty(ctx, a)
	case action.EndAside:
		return r.endAside(ctx, a)
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
		return r.applyBudget(ctx, a)
	case action.ApplyServiceMonitor:
		return r.applyServiceMonitor(ctx)
	case action.ApplyMemberService:
		return r.applyMemberService(ctx, a.Ordinal)
	case action.RetireMemberService:
		return r.retireMemberService(ctx, a)
	case action.DeleteMemberService:
		return r.deleteMemberService(ctx, a)
	case action.OpenPartition:
		return r.openPartition(ctx, a)
	case action.DeleteMembers:
		return r.deleteMembers(ctx, a)
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
	case action.DeleteJob:
		return r.deleteJob(ctx, a)
	case action.CreateDrain:
		return r.createDrain(ctx, a)
	case action.MarkLeaving:
		if r.cluster.Spec.InPods() {
			return r.markPod(ctx, a)
		}
		return r.markLeaving(ctx, a)
	case action.StampPod:
		return r.annotateHolder(ctx, a.Claim, map[string]any{cachev1alpha1.AnnotationMoved: strconv.FormatInt(a.Serial, 10)})
	case action.CreateMove:
		return r.createMove(ctx, a)
	case action.BeginMove:
		return r.beginMove(ctx, a)
	case action.RecordMoved:
		return r.recordMoved(ctx, a)
	case action.CountFailure:
		if a.Claim.UID == r.cluster.UID {
			return r.countWarmFailure(ctx, a)
		}
		if r.cluster.Spec.InPods() {
			return r.annotateHolder(ctx, a.Claim, map[string]any{cachev1alpha1.AnnotationAttempts: write.AttemptsText(a.Attempts)})
		}
	case action.ClearMoveRetry:
		if r.cluster.Spec.InPods() {
			return r.annotateHolder(ctx, a.Claim, map[string]any{cachev1alpha1.AnnotationMove: nil, cachev1alpha1.AnnotationAttempts: nil})
		}
		return r.claims.Clear(ctx, a.Claim, cachev1alpha1.AnnotationMove, cachev1alpha1.MoveRetry)
	case action.GrowClaim:
		return r.growClaim(ctx, a)
	case action.CreateWarm:
		return r.createWarm(ctx, a)
	case action.RecordWarm:
		return r.recordWarm(ctx, a)
	case action.ClearWarm:
		return r.clearWarm(ctx, a)
	}
	known, err := r.claims.Take(ctx, step)
	if !known {
		return fmt.Errorf("unknown action %T", step)
	}
	return err
}

// createDrain creates the Job, and adds it to the live read.
func (r *run) createDrain(ctx context.Context, a action.CreateDrain) error {
	before := len(r.claims.Done.Drains)
	_, err := r.claims.Take(ctx, a)
	for _, job := range r.claims.Done.Drains[before:] {
		r.view.Jobs = append(r.view.Jobs, observe.PlanJob(job.(*batchv1.Job), nil))
	}
	return err
}

// deleteJob deletes a Job. If it was the mover of a leaving member, an event says how the move has ended.
func (r *run) deleteJob(ctx context.Context, a action.DeleteJob) error {
	deleted, err := r.claims.DeleteJob(ctx, a)
	if deleted {
		r.tellMoved(a)
	}
	return err
}

// addFinalizer also writes which installation of the operator manages the cluster.
func (r *run) addFinalizer(ctx context.Context) error {
	added, err := write.AddFinalizer(ctx, r.Client, r.cluster, r.Installation)
	if added {
		r.first, r.owns = true, true // the lock has shown that the Memcached isn't deleted
	}
	return err
}

func (r *run) removeOwnerFinalizer(ctx context.Context) error {
	if r.cluster.UID == "" {
		return nil // the Memcached is gone
	}
	if err := r.mayRemoveOwnerFinalizer(ctx); err != nil {
		return err
	}
	if err := write.RemoveFinalizer(ctx, r.Client, r.cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.done.FinalizerRemoved = true
	return nil
}

// markLeaving writes the leaving mark, and how the member left.
func (r *run) markLeaving(ctx context.Context, a action.MarkLeaving) error {
	live, err := r.mayMark(ctx, a.Claim)
	if err != nil {
		return err
	}
	after, err := r.claims.Mark(ctx, a.Claim, claims.NextLeft(live.Claims), func(c *corev1.PersistentVolumeClaim) { // all marks of a plan share the live read
		delete(c.Annotations, cachev1alpha1.AnnotationAttempts) // the count was of failed moves
		if a.Unmoved {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationUnmoved, "true")
		}
		if a.NeverStarted {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationNeverStarted, "true")
		}
	})
	if after != nil {
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
	r.addMarkedPods()
}

// deleteMembers deletes the StatefulSet, unless the Memcached was deleted with --cascade=orphan,
// which keeps the members. Then the garbage collector first removes the StatefulSet's owner
// reference, and after that the finalizer orphan; the cache may be stale about both.
func (r *run) deleteMembers(ctx context.Context, a action.DeleteMembers) error {
	live, err := read.Get[appsv1.StatefulSet](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	switch {
	case err != nil || live == nil || live.UID != a.UID:
		return err
	case r.cluster.UID != "" && metav1.GetControllerOf(live) == nil:
		return read.Refuse("StatefulSet %s has no controller any more: the cache is stale", live.Name)
	}
	return write.Delete(ctx, r.Client, live)
}
