// Package apply carries out the plans of StatefulSetDrains. Package claims/write has the steps
// that Memcacheds have, too.
//
//	apply.go    the steps that only a StatefulSetDrain has   rules.go   what claims/write asks
//	dryrun.go   the check of spec.template
package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// Applier carries out plans. The state that it keeps between plans belongs to the reconciler.
type Applier struct {
	client.Client
	Reader *observe.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock
	// Made remembers the Jobs that this process has created.
	Made *remembered.Matches
}

// Done is what was written.
type Done struct {
	write.Done
	// Returned are the claims of members that are wanted again, and have their data.
	Returned []action.ClaimRef
	// FinalizerRemoved: the StatefulSetDrain's own finalizer was removed.
	FinalizerRemoved bool
}

// run carries out one plan.
type run struct {
	*Applier
	state  *observe.State
	plan   *stsdrain.Plan
	writer *write.Writer
	// refused says why the API server does not take the template.
	refused string
	// view is the last live read; nil if it no longer holds.
	view *observe.Live
	done Done
}

// Apply takes the steps of the plan in their order.
func (a *Applier) Apply(ctx context.Context, s *observe.State, p *stsdrain.Plan, refused string) (Done, error) {
	r := &run{Applier: a, state: s, plan: p, refused: refused}
	r.writer = &write.Writer{Client: client.WithFieldValidation(a.Client, metav1.FieldValidationStrict), Reader: s.Reader, Rules: r, Made: a.Made, Obstructed: a.Reader.Obstructed, Now: s.Now}
	r.writer.ForgetJobs(p.Actions)
	steps := write.Steps{
		Owner: client.ObjectKeyFromObject(s.Drain), Take: r.take, Obstructed: a.Reader.Obstructed, Now: s.Now,
		Before: func(step action.Action) {
			if action.KindOf(step).ReadsAgain {
				r.view = nil
			}
		},
		After: func(step action.Action, err error) {
			kind := action.KindOf(step)
			if err != nil || kind.ReadsAgain || kind.MakesJob { // spec.parallelism counts the new Job, too
				r.view = nil
			}
		},
	}
	a.Reader.Woken.Use(steps.Owner, func(w *observe.Woken) { // a member that is back may be absent again
		w.Ordinals = slices.DeleteFunc(slices.Clone(w.Ordinals), func(ordinal int32) bool { return !slices.Contains(p.Awaited, ordinal) })
	})
	err := steps.InOrder(ctx, p.Actions)
	for _, job := range s.Jobs.Unlabelled {
		if e := r.writer.Label(ctx, job); e != nil {
			err = write.Worse(err, client.IgnoreNotFound(e))
		}
	}
	r.done.Done = r.writer.Done
	return r.done, err
}

func (r *run) take(ctx context.Context, step action.Action) error {
	if known, err := r.writer.Take(ctx, step); known {
		return err
	}
	switch a := step.(type) {
	case action.AddOwnerFinalizer:
		_, err := write.AddFinalizer(ctx, r.Client, r.state.Drain, "")
		return err
	case action.RemoveOwnerFinalizer:
		return r.removeFinalizer(ctx)
	case action.Protect:
		return r.protect(ctx, a.Claim)
	case action.Label:
		claim, err := r.state.Reader.LiveClaim(ctx, a.Claim)
		if err != nil || claim == nil {
			return err
		}
		return r.writer.Label(ctx, claim)
	case action.Mark:
		return r.mark(ctx, a.Claim)
	case action.Unmark:
		return r.unmark(ctx, a.Claim)
	case action.Unlabel:
		_, err := r.writer.Patch(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
			if controllerutil.ContainsFinalizer(c, cachev1alpha1.ClaimFinalizer) {
				return read.Refuse("claim %s has our finalizer, and nothing would find it without its label", c.Name)
			}
			r.disown(c)
			return nil
		})
		return err
	case action.Wake:
		return r.wake(ctx, a)
	}
	return fmt.Errorf("unknown action %T", step)
}

// live reads everything live, once for steps that change nothing of it.
func (r *run) live(ctx context.Context) (*observe.Live, error) {
	if r.view != nil {
		return r.view, nil
	}
	var err error
	r.view, err = r.Reader.View(ctx, r.state.Drain, r.refused)
	return r.view, err
}

// protect gives a wanted member's claim the finalizer, and what proves that it was seen in time.
func (r *run) protect(ctx context.Context, ref action.ClaimRef) error {
	v, err := r.live(ctx)
	if err != nil {
		return err
	}
	if ends, err := read.NamespaceTerminates(ctx, r.Reader.Live, r.state.Drain.Namespace); err != nil || ends {
		return cmp.Or(err, read.Refuse("namespace %s is being deleted", r.state.Drain.Namespace))
	}
	_, err = r.writer.Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		live, ours := r.state.Reader.Claim(c)
		if !ours || !r.state.Reader.Owns(c) {
			return read.Refuse("claim %s is not a member's", c.Name)
		}
		if err := stsdrain.MayProtect(&v.Observed, &live); err != nil {
			return read.RefusedBy(err)
		}
		if !live.Protected && stsdrain.Uses(&v.Observed, &live) { // a person's request about a left-over claim, and its origin, no longer count
			forgetRequest(c)
			delete(c.Annotations, cachev1alpha1.AnnotationAdopted)
		}
		r.own(c)
		return nil
	})
	return err
}

// own writes on a claim that it is protected.
func (r *run) own(c *corev1.PersistentVolumeClaim) {
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[cachev1alpha1.LabelStatefulSetDrain] = r.state.Drain.Name
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationProtected, string(r.state.Drain.UID))
	write.OwnMarks(c)
	if c.DeletionTimestamp == nil { // the API server refuses another one then
		controllerutil.AddFinalizer(c, cachev1alpha1.ClaimFinalizer)
	}
}

// disown removes from a claim what own and a drain have written. A claim that has a departed member's volume
// keeps its mark, which tells the next StatefulSetDrain which claims are drained together.
func (r *run) disown(c *corev1.PersistentVolumeClaim) {
	keys := []string{cachev1alpha1.AnnotationProtected, cachev1alpha1.AnnotationReceipt, cachev1alpha1.AnnotationAttempts}
	if is, _ := r.state.Reader.Claim(c); !is.Aside {
		keys = append(keys, ofMark()...)
		keys = append(keys, cachev1alpha1.AnnotationClaimUID)
	}
	for _, key := range keys {
		delete(c.Annotations, key)
	}
	delete(c.Labels, cachev1alpha1.LabelStatefulSetDrain)
}

// mark writes the leaving mark.
func (r *run) mark(ctx context.Context, ref action.ClaimRef) error {
	v, err := r.live(ctx)
	if err != nil {
		return err
	}
	claim, err := r.state.Reader.LiveClaim(ctx, ref)
	if err != nil || claim == nil {
		return err
	}
	live, ours := r.state.Reader.Claim(claim)
	if !ours || !r.state.Reader.Owns(claim) {
		return read.Refuse("claim %s is not a member's", ref.Name)
	}
	if err := stsdrain.MayMark(&v.Observed, &live); err != nil {
		return read.RefusedBy(err)
	}
	_, err = r.writer.Mark(ctx, ref, claims.NumberFor(v.Claims, &live), r.own)
	return err
}

// ofMark are the annotations that the leaving mark and the drain after it bring.
func ofMark() []string {
	return []string{
		cachev1alpha1.AnnotationLeaving, cachev1alpha1.AnnotationLeft, cachev1alpha1.AnnotationPolicy, cachev1alpha1.AnnotationReceipt,
		cachev1alpha1.AnnotationAttempts,
	}
}

// unmark takes the leaving mark off: the member is wanted again, and uses the claim. A person's skip or retry was about
// this departure; a hold stays (claims.Claim.PlanUnmark).
func (r *run) unmark(ctx context.Context, ref action.ClaimRef) error {
	v, err := r.live(ctx)
	if err != nil {
		return err
	}
	unmarked, err := r.writer.Patch(ctx, ref, func(c *corev1.PersistentVolumeClaim) error {
		if err := stsdrain.MayUnmark(&v.Observed, c.UID); err != nil {
			return read.RefusedBy(err)
		}
		for _, key := range ofMark() {
			delete(c.Annotations, key)
		}
		forgetRequest(c)
		return nil
	})
	if unmarked {
		r.done.Returned = append(r.done.Returned, ref)
		r.Event(ref, "Returned", "Drain", "claim %s: its member is wanted again before its volume was drained, and has its data", ref.Name)
	}
	return err
}

// forgetRequest removes a person's skip or retry from a claim that a member uses again: otherwise it would be
// about the member's next departure.
func forgetRequest(c *corev1.PersistentVolumeClaim) {
	if c.Annotations[cachev1alpha1.AnnotationDrain] != cachev1alpha1.DrainHold {
		delete(c.Annotations, cachev1alpha1.AnnotationDrain)
	}
}

// wake increments an annotation of the StatefulSet, once for each absence.
func (r *run) wake(ctx context.Context, a action.Wake) error {
	key := client.ObjectKey{Namespace: r.state.Drain.Namespace, Name: r.state.Drain.Spec.StatefulSetName}
	set, err := read.Get[appsv1.StatefulSet](ctx, r.Reader.Live, key)
	if err != nil || set == nil || set.UID != a.UID {
		return err
	}
	before := set.DeepCopy()
	n, _ := strconv.ParseUint(set.Annotations[cachev1alpha1.AnnotationWake], 10, 32) // another client's value counts as 0
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, cachev1alpha1.AnnotationWake, strconv.FormatUint(n+1, 10))
	if err := r.Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.Reader.Woken.Use(client.ObjectKeyFromObject(r.state.Drain), func(w *observe.Woken) {
		*w = observe.Woken{By: r.state.Drain.UID, Ordinals: r.plan.Awaited}
	})
	return nil
}

// removeFinalizer lets the StatefulSetDrain go when none of its claims has the finalizer.
func (r *run) removeFinalizer(ctx context.Context) error {
	v, err := r.live(ctx)
	if err != nil {
		return err
	}
	facts := v.Facts
	if r.plan.Refused == (stsdrain.Refusal{}) { // else such claims are another's
		lost, err := r.state.Reader.Protected(ctx)
		if err != nil {
			return err
		}
		found := &read.LiveClaims{}
		if err := r.state.Reader.LookFor(ctx, found, lost...); err != nil {
			return err
		}
		facts.Claims = slices.Concat(facts.Claims, found.Claims)
	}
	if err := claims.MayRemoveOwnerFinalizer(&facts); err != nil {
		return read.RefusedBy(err)
	}
	err = write.RemoveFinalizer(ctx, r.Client, r.state.Drain)
	r.done.FinalizerRemoved = err == nil
	return client.IgnoreNotFound(err)
}

// VolumeInterval is how often volumes that wait for others are read.
const VolumeInterval = 5 * time.Second
