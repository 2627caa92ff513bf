package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
)

// Jobs are the owner's Jobs, and the pods of drainers.
type Jobs struct {
	Jobs []batchv1.Job
	// Ended are Jobs that were deleted and have ended, and that only another client's finalizer
	// keeps.
	Ended []batchv1.Job
	// Pods are those of drainers, even if their Job is gone. After LiveJobs they are all that
	// Owner.Pods finds.
	Pods []corev1.Pod
	// Unlabelled are Jobs of the owner that lack its label.
	Unlabelled []client.Object
	// foreign has the UIDs of Jobs that are not the owner's, but have pods with its labels.
	foreign map[types.UID]bool
	// seen has the UIDs of all Jobs that were read.
	seen map[types.UID]bool
}

// Jobs reads the owner's Jobs from the cache, and live what the cache doesn't show. pods are the
// pods of drainers that the cache has.
func (r *Reader) Jobs(ctx context.Context, pods []corev1.Pod) (*Jobs, error) {
	var list batchv1.JobList
	if err := r.cached(ctx, &list); err != nil {
		return nil, err
	}
	r.see(kindJobs, namesOf(list.Items, r.OwnsJob))
	j := &Jobs{Pods: pods}
	for i := range list.Items {
		job := &list.Items[i]
		switch {
		case !r.OwnsJob(job):
			continue
		case onlyKept(job, j.Pods):
			j.Ended = append(j.Ended, *job)
			continue
		}
		j.Jobs = append(j.Jobs, *job)
		if State(job) == claims.JobActive || LastEnded(j.Pods, job) != nil || initFailed(j.Pods, job) != "" {
			continue
		}
		if err := r.readPods(ctx, j, job); err != nil {
			return nil, err
		}
	}
	return j, r.dropForeign(ctx, j)
}

// readPods reads the pods of a Job live: the cache may have the end of the Job before the end of its
// pod.
func (r *Reader) readPods(ctx context.Context, j *Jobs, job *batchv1.Job) error {
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(r.Object.GetNamespace()), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
	if err != nil {
		return fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
	}
	j.Pods = slices.DeleteFunc(j.Pods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) })
	for _, pod := range pods.Items {
		if metav1.IsControlledBy(&pod, job) {
			j.Pods = append(j.Pods, pod)
		}
	}
	return nil
}

// onlyKept tells whether only another client's finalizer keeps the Job: the Job was deleted, and it and
// all its pods have ended.
func onlyKept(job *batchv1.Job, pods []corev1.Pod) bool {
	return job.DeletionTimestamp != nil && State(job) != claims.JobActive &&
		!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) && !PodEnded(&p) })
}

// dropForeign drops the pods whose Jobs look like the owner's but belong to another one. dropForeign
// reads a Job live if the cache lacks it; usually the Job is gone. A pod that has ended and is being
// deleted doesn't matter, so its Job is not read.
func (r *Reader) dropForeign(ctx context.Context, j *Jobs) error {
	known := map[types.UID]bool{}
	for _, job := range slices.Concat(j.Jobs, j.Ended) {
		known[job.UID] = true
	}
	var names []string
	for i := range j.Pods {
		pod := &j.Pods[i]
		gone := PodEnded(pod) && pod.DeletionTimestamp != nil
		if job := metav1.GetControllerOfNoCopy(pod); !gone && !known[job.UID] {
			names = append(names, job.Name)
		}
	}
	live := &Jobs{foreign: map[types.UID]bool{}, seen: map[types.UID]bool{}}
	if err := r.readByName(ctx, live, names); err != nil {
		return err
	}
	j.Unlabelled, j.foreign = live.Unlabelled, live.foreign
	for i := range j.Ended { // the pods of these Jobs have ended, too
		j.foreign[j.Ended[i].UID] = true
	}
	j.Pods = slices.DeleteFunc(j.Pods, j.isForeign)
	return nil
}

// isForeign tells whether the pod belongs to a Job of another owner.
func (j *Jobs) isForeign(pod corev1.Pod) bool {
	return j.foreign[metav1.GetControllerOfNoCopy(&pod).UID]
}

// Drainers are the pods of drainers, without those of another owner's Jobs.
func (j *Jobs) Drainers() []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(j.Pods), func(p corev1.Pod) bool { return !identity.DrainerPod(&p) || j.isForeign(p) })
}

// Active are the Jobs that have not ended.
func (j *Jobs) Active() []*batchv1.Job {
	var active []*batchv1.Job
	for i := range j.Jobs {
		if State(&j.Jobs[i]) == claims.JobActive {
			active = append(active, &j.Jobs[i])
		}
	}
	return active
}

// Job translates the Job, with its receipt, for the plan.
func (o *Owner) Job(job *batchv1.Job, pods []corev1.Pod) claims.Job {
	d := identity.DutyOf(job)
	out := claims.Job{
		Name:      job.Name,
		UID:       job.UID,
		ClaimUID:  d.Claim,
		Survivors: action.Range{Start: d.Start, Count: d.Survivors},
		Target:    d.Target,
		Waits:     d.Waits,
		Claims:    identity.Claims(job),
		State:     State(job),
		Deleting:  job.DeletionTimestamp != nil,
	}
	o.failAbandoned(&out, job, pods)
	if receipt := o.goodReceipt(job, pods); out.State == claims.JobActive && receipt != nil {
		out.State, out.Receipt = claims.JobComplete, receipt
		out.PodEnds = slices.ContainsFunc(pods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) && podEnds(&p) })
	}
	if out.State == claims.JobActive || out.Receipt != nil || !out.Ended.IsZero() {
		return out
	}
	out.Message, out.Ended = failure(job), endedAt(job)
	last := lastEnded(pods, job)
	if why := initFailed(pods, job); last == nil && out.Message != "" && why != "" {
		out.Message += ": " + why
	}
	out.Receipt, out.ReceiptErr = o.receipt(job, last)
	return out
}

// Unstarted tells whether none of the Job's present pods has run.
func Unstarted(job *batchv1.Job, pods []corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		ran := Drainer(&p)
		return metav1.IsControlledBy(&p, job) && (ran.Running != nil || ran.Terminated != nil)
	})
}

// goodReceipt is the receipt of a drainer of exactly this Job that succeeded, or nil. The Job's
// controller needs another second or two to report the success, and starts no other pod meanwhile.
func (o *Owner) goodReceipt(job *batchv1.Job, pods []corev1.Pod) *action.Receipt {
	for i := range pods {
		pod := &pods[i]
		if ended := Drainer(pod).Terminated; ended == nil || ended.ExitCode != 0 || !metav1.IsControlledBy(pod, job) {
			continue
		}
		receipt, err := o.receipt(job, pod)
		if err == nil && receipt.AddsUp(identity.DutyOf(job).Source()) == nil {
			return receipt
		}
	}
	return nil
}

func (o *Owner) receipt(job *batchv1.Job, ended *corev1.Pod) (*action.Receipt, error) {
	if ended == nil {
		return nil, fmt.Errorf("the drainer's pod is gone, and its receipt with it")
	}
	return o.Receipt(job, ended)
}

// State is the state of a Job by its conditions.
func State(job *batchv1.Job) claims.JobState {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return claims.JobComplete
		case c.Type == batchv1.JobFailed:
			return claims.JobFailed
		}
	}
	return claims.JobActive
}

// endedAt is when the Job ended; zero if it has not.
func endedAt(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func failure(job *batchv1.Job) string {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("Job %s: %s: %s", job.Name, c.Reason, c.Message)
		}
	}
	return ""
}

// LastEnded returns the state of the Job's drainer that ended last, or nil. A drainer that
// succeeded comes before all others.
func LastEnded(pods []corev1.Pod, job *batchv1.Job) *corev1.ContainerStateTerminated {
	if pod := lastEnded(pods, job); pod != nil {
		return Drainer(pod).Terminated
	}
	return nil
}

// lastEnded returns the pod of that drainer.
func lastEnded(pods []corev1.Pod, job *batchv1.Job) (last *corev1.Pod) {
	worth := func(pod *corev1.Pod) int {
		switch {
		case Succeeded(pod):
			return 2
		case Drainer(pod).Terminated.ExitCode == 0:
			return 1
		}
		return 0
	}
	for i := range pods {
		pod := &pods[i]
		ended := Drainer(pod).Terminated
		if ended == nil || !metav1.IsControlledBy(pod, job) {
			continue
		}
		if last == nil || cmp.Or(cmp.Compare(worth(pod), worth(last)), ended.FinishedAt.Compare(Drainer(last).Terminated.FinishedAt.Time)) > 0 {
			last = pod
		}
	}
	return last
}
