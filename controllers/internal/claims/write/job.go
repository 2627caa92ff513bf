package write

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

func (w *Writer) createDrain(ctx context.Context, a action.CreateDrain) error {
	job, err := w.Rules.DrainJob(a)
	if err != nil {
		return err
	}
	if err := w.madeBefore(ctx, job.GetName()); err != nil {
		return err
	}
	if err := w.Rules.MayDrain(ctx, a); err != nil {
		return err
	}
	if err := w.CreateJob(ctx, a.Claim.UID, job); err != nil {
		return err
	}
	w.Done.Drains = append(w.Done.Drains, job)
	w.Rules.Event(a.Claim, "DrainStarted", "Drain", "Job %s drains claim %s into %d members", job.GetName(), a.Claim.Name, a.Survivors.Count)
	return nil
}

// kindJob with the name of a Job is the key in Made of a Job that this process has created.
const kindJob = "Job "

// ForgetJobs forgets the Jobs that the plan no longer wants to create.
func (w *Writer) ForgetJobs(actions []action.Action) {
	wanted := map[string]bool{}
	for _, step := range actions {
		if drain, is := step.(action.CreateDrain); is {
			wanted[kindJob+build.DrainName(drain.Claim.Name, drain.Claim.UID)] = true
		}
	}
	w.Made.Drop(w.Reader.Object, func(kind string) bool { return strings.HasPrefix(kind, kindJob) && !wanted[kind] })
}

// madeBefore refuses to create a Job again that exists and is not in the cache yet. One read of the
// Job replaces the whole live read of the guard.
func (w *Writer) madeBefore(ctx context.Context, name string) error {
	made := kindJob + name
	if !w.Made.Has(w.Reader.Object, made, w.Reader.Object, 0) {
		return nil
	}
	w.Made.Drop(w.Reader.Object, func(kind string) bool { return kind == made })
	live, err := w.liveJob(ctx, name)
	if err != nil || live == nil || !w.Reader.OwnsJob(live) {
		return err
	}
	return read.Refuse("Job %s exists already: the cache is stale", name)
}

func (w *Writer) liveJob(ctx context.Context, name string) (*batchv1.Job, error) {
	return read.Get[batchv1.Job](ctx, w.Reader.Live, client.ObjectKey{Namespace: w.Reader.Object.GetNamespace(), Name: name})
}

// vanishedError says that the Jobs of a claim go before the operator knows how they ended.
type vanishedError struct {
	jobs int32
	next time.Time
}

func (e *vanishedError) Error() string {
	return fmt.Sprintf("its last Jobs (%d) were deleted by another client, or by Kubernetes (ttlSecondsAfterFinished), before the operator knew how they ended: the next one is made at %s",
		e.jobs, e.next.UTC().Format(time.RFC3339))
}

func (e *vanishedError) Unwrap() error { return read.ErrRefused }

// tooSoon refuses to make a claim's Job again and again without a pause. The first Job that vanishes is made
// again at once.
func (w *Writer) tooSoon(claim types.UID) error {
	jobs, last := w.Obstructed.MadeBefore(client.ObjectKeyFromObject(w.Reader.Object), claim)
	if jobs < 2 {
		return nil
	}
	if next := last.Add(claims.Pause(jobs - 1)); next.After(w.Now) {
		return &vanishedError{jobs: jobs, next: next}
	}
	return nil
}

// CreateJob creates a Job for the claim. The caller knows that the Job isn't there.
func (w *Writer) CreateJob(ctx context.Context, claim types.UID, job client.Object) error {
	if err := w.tooSoon(claim); err != nil {
		return err
	}
	err := w.Create(ctx, job)
	if err == nil {
		w.Obstructed.Made(client.ObjectKeyFromObject(w.Reader.Object), claim, w.Now)
	}
	if err == nil && w.Reader.Object.GetUID() != "" {
		w.Made.Note(w.Reader.Object, kindJob+job.GetName(), w.Reader.Object, 0)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := w.liveJob(ctx, job.GetName())
	if err != nil {
		return err
	}
	if live == nil {
		return w.exists(ctx, "Job", job.GetName(), nil, false)
	}
	ours := w.Reader.OwnsJob(live)
	if err := spoilt(w.Reader.Object, job, live); err != nil && !ours {
		return err
	}
	return w.exists(ctx, "Job", job.GetName(), live, ours)
}

// DeleteJob deletes the Job, unless it is being deleted already and the cache is stale. DeleteJob
// tells whether it did.
func (w *Writer) DeleteJob(ctx context.Context, a action.DeleteJob) (deleted bool, err error) {
	job, err := w.liveJob(ctx, a.Name)
	if err != nil || job == nil || job.UID != a.UID || job.DeletionTimestamp != nil {
		return false, err
	}
	err = Delete(ctx, w.Client, job)
	return err == nil, err
}
