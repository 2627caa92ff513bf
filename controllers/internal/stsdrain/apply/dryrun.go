package apply

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// DryRuns has the API server check the template of each StatefulSetDrain before its first drain, by a
// dry run of a Job. An answer is remembered until the Job would differ; a refused Job is tried again,
// because a quota or a policy may change. Its zero value is ready to use.
type DryRuns struct{ kept remembered.ByObject[dryRun] }

type dryRun struct {
	owner types.UID
	// job is a hash of the Job that the answer is about, asked of the Job that was tried last.
	job, asked uint64
	// refused is why the Job can't be created; empty if it can. since is when the Job was first refused.
	refused string
	since   time.Time
	// silent is since when there has been no answer; zero if the last try had one.
	silent time.Time
	next   time.Time
}

// A template that is refused, or that could not be tried, is tried again after these times at first and at last.
const (
	dryRunFirst = 5 * time.Second
	dryRunLast  = 5 * time.Minute
)

// Check returns why the API server refuses the template's Jobs, in its words, and when to check again if
// nothing changes; zero if that isn't needed. An error says that the API server could not be asked now.
func (d *DryRuns) Check(ctx context.Context, c client.Client, owner *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet, now time.Time) (refused string, wait time.Duration, err error) {
	job, err := stsdrain.SampleJob(owner, set)
	if err != nil {
		return err.Error(), 0, nil // the template or the StatefulSet must change
	}
	key, tried := client.ObjectKeyFromObject(owner), dryRun{owner: owner.UID, job: hashOf(job)}
	tried.asked = tried.job
	var last dryRun
	d.kept.Use(key, func(kept *dryRun) { last = *kept })
	if last.owner != tried.owner {
		last = dryRun{owner: tried.owner}
	}
	known := last.job == tried.job
	switch {
	case known && last.refused == "":
		return "", 0, nil
	case last.asked == tried.asked && now.Before(last.next):
		return last.refused, until(last.next, now), nil
	}
	if tried.refused, err = try(ctx, c, job); err != nil {
		last.asked = tried.asked
		if last.silent.IsZero() {
			last.silent = now
		}
		last.next = next(last.silent, now)
		d.kept.Use(key, func(kept *dryRun) { *kept = last })
		return last.refused, until(last.next, now), err
	}
	if tried.refused != "" {
		tried.since = now
		if known {
			tried.since = last.since
		}
		tried.next = next(tried.since, now)
	}
	d.kept.Use(key, func(kept *dryRun) { *kept = tried })
	return tried.refused, until(tried.next, now), nil
}

// Forget forgets a StatefulSetDrain that is gone.
func (d *DryRuns) Forget(key client.ObjectKey) { d.kept.Forget(key) }

// next is when to try again: after as long as the trouble has lasted, within bounds.
func next(since, now time.Time) time.Time {
	return now.Add(min(max(now.Sub(since), dryRunFirst), dryRunLast))
}

func until(next, now time.Time) time.Duration {
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(now), time.Millisecond)
}

// try has the API server check the Job, each of its fields.
func try(ctx context.Context, c client.Client, job *unstructured.Unstructured) (refused string, err error) {
	err = c.Create(ctx, job.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run"):
		return "", nil // a webhook that can only be asked when the Job is created
	case read.Denied(err):
		return withoutName(err.Error(), job.GetName()), nil
	}
	return "", err
}

// withoutName leaves out the name of a Job that does not exist.
func withoutName(message, name string) string {
	message = strings.ReplaceAll(message, `Job.batch "`+name+`" is invalid: `, "")
	return strings.ReplaceAll(message, `jobs.batch "`+name+`" is forbidden: `, "forbidden: ")
}

func hashOf(job *unstructured.Unstructured) uint64 {
	text, _ := json.Marshal(job) // a Job that came as JSON can be marshalled
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}
