package apply

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/claims/write"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// createWarm creates the Job that copies from the source. A stale cache may not know yet that the source was copied.
func (r *run) createWarm(ctx context.Context, a action.CreateWarm) error {
	if _, err := r.liveWarmed(ctx, &a.Before); err != nil {
		return err
	}
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if err := plan.MayWarm(&live.Observed, a); err != nil {
		return read.RefusedBy(err)
	}
	if r.present.Warm == nil || r.present.Warm.From == nil && a.Volume.Name == "" {
		return read.Refuse("the source of spec.warmFrom is not there")
	}
	job := build.WarmJob(r.cluster, r.Options, build.Warm{
		Target: a.Target, Members: a.Members, From: r.present.Warm.From, Claim: a.Volume.Name,
		Counts: a.Counts, Decides: a.Decides, Besides: a.Besides, Resume: a.Resume, Answers: a.Answers, Ports: r.ports,
	})
	if err := r.claims.CreateJob(ctx, a.Claim.UID, job); err != nil {
		return err
	}
	r.done.Warms = append(r.done.Warms, *job)
	r.view.Warms = append(r.view.Warms, observe.PlanJob(job, nil))
	from := build.WarmSays(r.cluster)
	if a.Volume.Name != "" {
		from = "claim " + a.Volume.Name
	}
	does := "copies"
	if a.Counts {
		does = "counts, before anything is copied,"
	}
	r.event(r.cluster, "WarmingStarted", "Warm", "Job %s %s %s to %d members", job.Name, does, from, a.Members)
	return nil
}

// liveWarmed reads the Memcached live, and refuses if its record is not the one that the plan saw.
func (r *run) liveWarmed(ctx context.Context, before *action.WarmRecord) (*cachev1alpha1.Memcached, error) {
	live, err := read.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	switch {
	case err != nil:
		return nil, err
	case live == nil || live.UID != r.cluster.UID || live.DeletionTimestamp != nil:
		return nil, read.Refuse("Memcached %s was deleted: the cache is stale", r.cluster.Name)
	}
	if is := observe.WarmRecord(live); is.String() != before.String() {
		return nil, read.Refuse("the end of another Job of the warming is recorded already: the cache is stale")
	}
	return live, nil
}

// recordWarm writes the record on the Memcached, and removes the person's request that it answers.
func (r *run) recordWarm(ctx context.Context, a action.RecordWarm) error {
	if a.Receipt != nil {
		if err := a.Receipt.AddsUp(ring.Source(a.Claim.UID, a.Target)); err != nil {
			return read.Refuse("this is no receipt of the warming: %v", err)
		}
	}
	live, err := r.liveWarmed(ctx, &a.Before)
	if err != nil {
		return err
	}
	set := map[string]string{}
	ended := a.Receipt != nil && a.Record.Jobs != a.Before.Jobs // it was no count
	if ended {
		a.Record.At = r.now.UTC().Truncate(1e9)
	}
	if !a.Notes() {
		set[cachev1alpha1.AnnotationAttempts] = ""
	}
	a.Record.Since = a.Record.Since.UTC().Truncate(1e9)
	set[cachev1alpha1.AnnotationWarmed] = a.Record.String()
	if err := r.annotateCluster(ctx, live, a.Answers, set); err != nil {
		return err
	}
	switch changed := a.Record.Result != a.Before.Result; {
	case a.Receipt != nil && !ended, a.Notes():
	case ended:
		r.event(r.cluster, "Warmed", "Warm", "%s: %s", build.WarmSays(r.cluster), warmSummary(a.Receipt))
	case changed && a.Record.Result == action.WarmGivenUp:
		r.event(r.cluster, "WarmingGivenUp", "Warm", "nothing more is copied from %s, as spec.warmFrom.patience says: %s", build.WarmSays(r.cluster), a.Record.Why)
	case changed && a.Record.Result == action.WarmCopied:
		r.event(r.cluster, "Warmed", "Warm", "%s: all that are left were copied", build.WarmSays(r.cluster))
	case a.Record.Result == action.WarmOnMiss:
		r.event(r.cluster, "WarmedOnMiss", "Warm", "%s can't be listed: routers ask it for what they miss", build.WarmSays(r.cluster))
	default:
		r.event(r.cluster, "WarmingSkipped", "Warm", "nothing more is copied from %s", build.WarmSays(r.cluster))
	}
	return nil
}

// warmSummary says also what is missing.
func warmSummary(of *action.Receipt) string {
	r, text := plan.ReceiptNumbers(of), summary(of)
	if n := r.LeftOut + r.NoTextForm; n > 0 {
		text += fmt.Sprintf(", %d left out", n)
	}
	if r.Rejected > 0 {
		text += fmt.Sprintf(", %d refused", r.Rejected)
	}
	if slices.Contains(r.CantTell, contract.CantTellCopies) {
		text += "; another copy only adds, since not all members can tell copies from clients' values"
	}
	return text
}

// countWarmFailure is CountFailure for a warming.
func (r *run) countWarmFailure(ctx context.Context, a action.CountFailure) error {
	live, err := read.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	if err != nil || live == nil || live.UID != r.cluster.UID {
		return err
	}
	return r.annotateCluster(ctx, live, "", map[string]string{cachev1alpha1.AnnotationAttempts: write.AttemptsText(a.Attempts)})
}

// clearWarm is ClearRetry for a warming.
func (r *run) clearWarm(ctx context.Context, a action.ClearWarm) error {
	live, err := read.Get[cachev1alpha1.Memcached](ctx, r.Reader.Live, client.ObjectKeyFromObject(r.cluster))
	if err != nil || live == nil || live.UID != r.cluster.UID {
		return err
	}
	set := map[string]string{cachev1alpha1.AnnotationAttempts: ""}
	if record := observe.FailedBefore(live); record != nil {
		record.Since = time.Time{}
		set[cachev1alpha1.AnnotationWarmed] = record.String()
	}
	return r.annotateCluster(ctx, live, a.Answers, set)
}

// annotateCluster sets the annotations, or removes those with an empty value, on exactly this version of the
// Memcached, and removes the person's request if that is still the one that was answered.
func (r *run) annotateCluster(ctx context.Context, live *cachev1alpha1.Memcached, answers string, set map[string]string) error {
	before := live.DeepCopy()
	for key, value := range set {
		if metav1.SetMetaDataAnnotation(&live.ObjectMeta, key, value); value == "" {
			delete(live.Annotations, key)
		}
	}
	if answers != "" && live.Annotations[cachev1alpha1.AnnotationWarm] == answers {
		delete(live.Annotations, cachev1alpha1.AnnotationWarm)
	}
	if equality.Semantic.DeepEqual(before.Annotations, live.Annotations) {
		return nil
	}
	if err := r.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	if live.Generation == r.cluster.Generation { // otherwise the next reconcile has another spec
		r.cluster.Annotations, r.cluster.ResourceVersion = live.Annotations, live.ResourceVersion
	}
	return nil
}
