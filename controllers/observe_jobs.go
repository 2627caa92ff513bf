package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// observeJobs reads the Jobs of drains and placements, the progress of those that
// run, and the pods of those that ended.
func (r *MemcachedReconciler) observeJobs(ctx context.Context, key client.ObjectKey, o *observed) error {
	var jobs batchv1.JobList
	if err := r.list(ctx, key, &jobs); err != nil {
		return err
	}
	o.progress = map[types.UID]contract.Progress{}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if places(job) {
			o.placements = append(o.placements, *job)
		} else {
			o.jobs = append(o.jobs, *job)
		}
		if jobState(job) == plan.JobActive {
			r.observeProgress(ctx, o, job)
			continue
		}
		if lastEnded(o.drainerPods, job) == nil {
			// The cache may know of a Job's end before that of its pod.
			var pods corev1.PodList
			err := r.Live.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
			if err != nil {
				return fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
			}
			o.drainerPods = slices.DeleteFunc(o.drainerPods, func(p corev1.Pod) bool { return p.Labels[batchv1.JobNameLabel] == job.Name })
			o.drainerPods = append(o.drainerPods, pods.Items...)
		}
	}
	return nil
}

// places tells a placement's Job from a drain's.
func places(job *batchv1.Job) bool {
	return job.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentPlacement
}

// observeProgress reads a drain's progress, which is nice to have: where that
// fails, the drain goes on and shows none.
func (r *MemcachedReconciler) observeProgress(ctx context.Context, o *observed, job *batchv1.Job) {
	if r.Progress == nil {
		return
	}
	for i := range o.drainerPods {
		pod := &o.drainerPods[i]
		if pod.Labels[batchv1.JobNameLabel] != job.Name || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		progress, err := r.Progress(ctx, pod.Namespace, pod.Name)
		if err != nil {
			logf.FromContext(ctx).V(1).Info("Can't read a drainer's progress", "pod", pod.Name, "error", err.Error())
		}
		if progress != nil {
			o.progress[claimUID(job)] = *progress
		}
	}
}

func planJob(job *batchv1.Job, pods []corev1.Pod) plan.Job {
	survivors, _ := strconv.ParseInt(job.Annotations[cachev1alpha1.AnnotationSurvivors], 10, 32)
	out := plan.Job{
		Name:      job.Name,
		UID:       job.UID,
		ClaimUID:  claimUID(job),
		Survivors: int32(survivors),
		Target:    job.Annotations[cachev1alpha1.AnnotationTarget],
		State:     jobState(job),
		Deleting:  job.DeletionTimestamp != nil,
	}
	if receipt := goodReceipt(job, pods); out.State == plan.JobActive && receipt != nil {
		out.State, out.Receipt = plan.JobComplete, receipt
	}
	if out.State == plan.JobActive || out.Receipt != nil {
		return out
	}
	out.Message = jobMessage(job)
	out.Receipt, out.ReceiptErr = podReceipt(lastEnded(pods, job))
	return out
}

// movers are the drainers of placements among the pods that have not ended.
func movers(pods []corev1.Pod) []plan.Mover {
	var found []plan.Mover
	for i := range pods {
		pod := &pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentPlacement && !ended {
			found = append(found, plan.Mover{
				ClaimUID: types.UID(pod.Annotations[cachev1alpha1.AnnotationClaimUID]),
				Target:   pod.Annotations[cachev1alpha1.AnnotationTarget],
			})
		}
	}
	return found
}

func claimUID(job *batchv1.Job) types.UID {
	return types.UID(job.Annotations[cachev1alpha1.AnnotationClaimUID])
}

// sourceOf is what the receipt of the Job has to be about.
func sourceOf(job *batchv1.Job) string {
	if places(job) {
		return ring.Source(claimUID(job), job.Annotations[cachev1alpha1.AnnotationTarget])
	}
	return string(claimUID(job))
}

// goodReceipt is that of a drainer of this very Job that ended well, or nil. The
// Job's controller takes a second or two to say so itself, and starts no other pod
// meanwhile: this one counts.
func goodReceipt(job *batchv1.Job, pods []corev1.Pod) *contract.Receipt {
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase != corev1.PodSucceeded || !metav1.IsControlledBy(pod, job) {
			continue
		}
		receipt, err := podReceipt(lastEnded(pods[i:i+1], job))
		if err == nil && receipt.AddsUp(sourceOf(job)) == nil {
			return receipt
		}
	}
	return nil
}

func jobState(job *batchv1.Job) plan.JobState {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return plan.JobComplete
		case c.Type == batchv1.JobFailed:
			return plan.JobFailed
		}
	}
	return plan.JobActive
}

func jobMessage(job *batchv1.Job) string {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("Job %s: %s: %s", job.Name, c.Reason, c.Message)
		}
	}
	return ""
}

// lastEnded returns the Job's drainer that ended last, or nil; one that
// succeeded goes before any other.
func lastEnded(pods []corev1.Pod, job *batchv1.Job) *corev1.ContainerStateTerminated {
	var last *corev1.ContainerStateTerminated
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[batchv1.JobNameLabel] != job.Name {
			continue
		}
		for j := range pod.Status.ContainerStatuses {
			t := pod.Status.ContainerStatuses[j].State.Terminated
			if t == nil {
				continue
			}
			if last == nil || t.ExitCode == 0 || last.ExitCode != 0 && last.FinishedAt.Before(&t.FinishedAt) {
				last = t
			}
		}
	}
	return last
}

func podReceipt(ended *corev1.ContainerStateTerminated) (*contract.Receipt, error) {
	if ended == nil {
		return nil, fmt.Errorf("the drainer's pod is gone, and its receipt with it")
	}
	return contract.ParseReceipt(ended.Message)
}

// drainerRuns tells whether a drain's progress may change.
func (o *observed) drainerRuns() bool {
	return slices.ContainsFunc(o.drainerPods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
}

// drainerStarts returns how long until status says that a drainer doesn't start:
// no event will tell. Zero if none is about to.
func (o *observed) drainerStarts(now time.Time) time.Duration {
	var wait time.Duration
	for i := range o.drainerPods {
		left := o.drainerPods[i].CreationTimestamp.Add(slowStart).Sub(now)
		if o.drainerPods[i].Status.Phase == corev1.PodPending && left > wait {
			wait = left
		}
	}
	return wait
}
