package apply

import (
	"context"
	"slices"
	"strconv"

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

// createPlacement creates the Job for the ring that the clients' list has, or is about to
// have.
func (r *run) createPlacement(ctx context.Context, a action.CreatePlacement) error {
	if err := r.mayPlace(ctx, a); err != nil {
		return err
	}
	job := build.PlacementJob(r.cluster, r.Options, build.Placement{
		Claim: a.Claim.Name, UID: a.Claim.UID, Ordinal: a.Claim.Ordinal, Target: a.Target, Members: a.Members, Lost: a.Lost,
		Prepared: a.Prepared, Leases: a.Leases, Ports: r.ports,
	})
	if err := r.createJob(ctx, job); err != nil {
		return err
	}
	r.done.Placements = append(r.done.Placements, *job)
	r.view.Placements = append(r.view.Placements, observe.PlanJob(job, nil))
	does := "moves"
	if a.Prepared {
		does = "is about to move"
	}
	r.claimEvent(r.cluster, a.Claim, "PlacementStarted", "Place", "Job %s %s items of member %d to their owners among %d members",
		job.Name, does, a.Claim.Ordinal, a.Members)
	if len(a.Lost) > 0 {
		r.claimEvent(r.cluster, a.Claim, "ItemsDiscarded", "Place", "Job %s discards the items of member %d that %d lost members own: "+
			"clients may have stored newer values there", job.Name, a.Claim.Ordinal, len(a.Lost))
	}
	return nil
}

// beginMove tells the prepared pods of the member's placement that the clients' list is of
// their ring. A pod that is gone has moved nothing.
func (r *run) beginMove(ctx context.Context, a action.BeginMove) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := plan.MayBegin(&live.Observed, a); err != nil {
		return observe.RefusedBy(err)
	}
	for i := range r.present.DrainerPods {
		pod := &r.present.DrainerPods[i]
		d, job := identity.DutyOf(pod), metav1.GetControllerOfNoCopy(pod)
		ours := slices.ContainsFunc(live.Placements, func(j plan.Job) bool { return job != nil && j.UID == job.UID })
		if !ours || d.Claim != a.Claim.UID || d.Target != a.Target || !d.Waits || observe.DrainerEnded(pod) {
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

// recordPlaced writes on the claim that its member's items are placed. The receipt goes
// into an event and the metrics, and is not kept.
func (r *run) recordPlaced(ctx context.Context, a action.RecordPlaced) error {
	if a.Receipt != nil {
		if err := a.Receipt.AddsUp(ring.Source(a.Claim.UID, a.Target)); err != nil {
			return observe.Refuse("this is no receipt of the placement: %v", err)
		}
	}
	if a.Receipt == nil {
		live, err := r.live(ctx)
		if err != nil {
			return err
		}
		if err := plan.MayRecordSkip(&live.Observed, a); err != nil {
			return observe.RefusedBy(err)
		}
	}
	recorded, err := r.annotateClaim(ctx, a.Claim, func(c *corev1.PersistentVolumeClaim) error {
		if a.Receipt == nil && c.Annotations[cachev1alpha1.AnnotationPlacement] != cachev1alpha1.PlacementSkip {
			return observe.Refuse("claim %s is not annotated with a skip", c.Name)
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, cachev1alpha1.AnnotationPlaced, strconv.FormatInt(a.Serial, 10))
		delete(c.Annotations, cachev1alpha1.AnnotationPlacement)
		delete(c.Annotations, cachev1alpha1.AnnotationAttempts)
		return nil
	})
	if recorded {
		r.done.Placed = append(r.done.Placed, a.Receipt)
	}
	switch {
	case !recorded:
	case a.Receipt == nil:
		r.claimEvent(r.cluster, a.Claim, "PlacementSkipped", "Place", "claim %s: its member's items stay where they are", a.Claim.Name)
	default:
		r.claimEvent(r.cluster, a.Claim, "Placed", "Place", "claim %s: %s", a.Claim.Name, summary(a.Receipt))
	}
	return err
}
