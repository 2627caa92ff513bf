package apply

import (
	"context"
	"slices"
	"strconv"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// createMove creates the Job for the ring that the clients' list has, or is about to
// have.
func (r *run) createMove(ctx context.Context, a action.CreateMove) error {
	if err := r.mayMove(ctx, a); err != nil {
		return err
	}
	job := build.MoveJob(r.cluster, r.Options, build.Move{
		Claim: a.Claim.Name, UID: a.Claim.UID, Ordinal: a.Claim.Ordinal, Target: a.Target, Members: a.Members, Out: a.Out, Lost: a.Lost,
		Prepared: a.Prepared, Leases: a.Leases, Ports: r.ports,
	})
	if err := r.claims.CreateJob(ctx, a.Claim.UID, job); err != nil {
		return err
	}
	r.done.Moves = append(r.done.Moves, *job)
	r.view.Moves = append(r.view.Moves, observe.PlanJob(job, nil))
	does := "moves"
	if a.Prepared {
		does = "is about to move"
	}
	r.claimEvent(r.cluster, a.Claim, "MoveStarted", "Move", "Job %s %s items of member %d to their owners among %d members",
		job.Name, does, a.Claim.Ordinal, a.Members)
	if len(a.Lost) > 0 {
		r.claimEvent(r.cluster, a.Claim, "ItemsDiscarded", "Move", "Job %s discards the items of member %d that %d lost members own: "+
			"clients may have stored newer values there", job.Name, a.Claim.Ordinal, len(a.Lost))
	}
	return nil
}

// beginMove tells the prepared pods of the member's move that the clients' list is of
// their ring. A pod that is gone has moved nothing.
func (r *run) beginMove(ctx context.Context, a action.BeginMove) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := plan.MayBegin(&live.Observed, a); err != nil {
		return read.RefusedBy(err)
	}
	for i := range r.present.DrainerPods {
		pod := &r.present.DrainerPods[i]
		d, job := identity.DutyOf(pod), metav1.GetControllerOfNoCopy(pod)
		ours := slices.ContainsFunc(live.Moves, func(j claims.Job) bool { return job != nil && j.UID == job.UID })
		if !ours || d.Claim != a.Claim.UID || d.Target != a.Target || !d.Waits || read.DrainerEnded(pod) {
			continue
		}
		begin := a.Target
		if a.Leases {
			begin += contract.BeginLeases
		}
		if err := r.annotatePod(ctx, pod, map[string]string{cachev1alpha1.AnnotationBegin: begin}); err != nil {
			return err
		}
	}
	return nil
}

// recordMoved writes on the claim that its member's items are moved. The receipt goes
// into an event and the metrics, and is not kept.
func (r *run) recordMoved(ctx context.Context, a action.RecordMoved) error {
	if a.Receipt != nil {
		if err := a.Receipt.AddsUp(ring.Source(a.Claim.UID, a.Target)); err != nil {
			return read.Refuse("this is no receipt of the move: %v", err)
		}
	}
	if a.Receipt == nil {
		live, err := r.live(ctx)
		if err != nil {
			return err
		}
		if err := plan.MayRecordSkip(&live.Observed, a); err != nil {
			return read.RefusedBy(err)
		}
	}
	if r.cluster.Spec.InPods() {
		return r.recordMovedInPod(ctx, a)
	}
	recorded, err := r.claims.Annotate(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		if a.Receipt == nil && c.Annotations[cachev1alpha1.AnnotationMove] != cachev1alpha1.MoveSkip {
			return read.Refuse("claim %s is not annotated with a skip", c.Name)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationMoved, strconv.FormatInt(a.Serial, 10))
		delete(c.Annotations, cachev1alpha1.AnnotationMove)
		delete(c.Annotations, cachev1alpha1.AnnotationAttempts)
		return nil
	})
	if recorded {
		r.done.Moved = append(r.done.Moved, a.Receipt)
		r.tellRecorded(a)
	}
	return err
}

func (r *run) tellRecorded(a action.RecordMoved) {
	if a.Receipt == nil {
		r.claimEvent(r.cluster, a.Claim, "MoveSkipped", "Move", "%s %s: its member's items stay where they are", r.holder(), a.Claim.Name)
		return
	}
	r.claimEvent(r.cluster, a.Claim, "Moved", "Move", "%s %s: %s", r.holder(), a.Claim.Name, summary(a.Receipt))
}
