package observe

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// Others put containers beside the drainer: a mesh's proxy, a log shipper. Such a pod
// runs on when the drainer has ended, or is pending while the drainer is at work. So it
// is the drainer's container that counts, and never the pod's phase or another container.

// drainerOf returns the state of the pod's drainer; empty where the kubelet has not
// told of it.
func drainerOf(pod *corev1.Pod) corev1.ContainerState {
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == build.ContainerDrainer {
			return c.State
		}
	}
	return corev1.ContainerState{}
}

// drainerRuns tells whether the pod's drainer is at work.
func drainerRuns(pod *corev1.Pod) bool { return !podEnded(pod) && drainerOf(pod).Running != nil }

// DrainerEnded tells whether the pod's drainer does nothing any more.
func DrainerEnded(pod *corev1.Pod) bool { return podEnded(pod) || drainerOf(pod).Terminated != nil }

func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// abandoned returns how the Job's drainer ended that failed in a pod which another
// container keeps running, or nil. Neither the pod nor the Job ends by itself then. A
// pod that is being deleted does, and so does one whose sidecars are Kubernetes' own:
// those are init containers.
func abandoned(job *batchv1.Job, pods []corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pods {
		pod := &pods[i]
		ended := drainerOf(pod).Terminated
		if ended == nil || ended.ExitCode == 0 && goodReceipt(job, pods[i:i+1]) != nil ||
			podEnded(pod) || pod.DeletionTimestamp != nil || !metav1.IsControlledBy(pod, job) {
			continue
		}
		if slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil }) {
			return ended
		}
	}
	return nil
}

// failAbandoned counts a Job as failed whose drainer has failed in such a pod. It is
// deleted with its pod before the next attempt, like any Job that failed. Until then it may
// go on: when the pod ends, the Job's controller makes the next one.
func failAbandoned(out *plan.Job, job *batchv1.Job, pods []corev1.Pod) {
	ended := abandoned(job, pods)
	if out.State != plan.JobActive || ended == nil {
		return
	}
	out.State, out.PodKept, out.Ended = plan.JobFailed, true, ended.FinishedAt.Time
	out.Message = fmt.Sprintf("Job %s: the drainer ended with exit code %d, and another container keeps its pod running", job.Name, ended.ExitCode)
	out.Receipt, out.ReceiptErr = podReceipt(ended)
}
