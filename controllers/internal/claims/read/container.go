package read

import (
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// Other software injects containers beside the drainer, such as a mesh's proxy or a log shipper.
// Such a pod still runs when the drainer has ended, and may be pending while the drainer is at
// work. So only the state of the drainer's container counts, not the pod's phase.

// Drainer returns the state of the pod's drainer container; empty if the kubelet has not reported
// it.
func Drainer(pod *corev1.Pod) corev1.ContainerState {
	name := drainersContainer(pod)
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == name {
			return c.State
		}
	}
	return corev1.ContainerState{}
}

// drainersContainer is the name of the pod's drainer container. A StatefulSetDrain's template may choose any
// name.
func drainersContainer(pod *corev1.Pod) string {
	if _, is := pod.Labels[cachev1alpha1.LabelStatefulSetDrain]; is {
		return pod.Annotations[cachev1alpha1.AnnotationContainer]
	}
	return build.ContainerDrainer
}

// DrainerRuns tells whether the pod's drainer runs, as far as its node reports.
func DrainerRuns(pod *corev1.Pod) bool { return !PodEnded(pod) && Drainer(pod).Running != nil }

// AtWork tells whether the pod's drainer is at work, as far as its node reports. The pod of a node that is
// gone seems to run, but Kubernetes soon marks it as not ready. A kubelet also marks a pod as not ready if a
// container beside the drainer isn't ready or has ended, and gives a reason then.
func AtWork(pod *corev1.Pod) bool {
	away := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue && !slices.Contains(kubeletsReasons, c.Reason)
	})
	return DrainerRuns(pod) && pod.DeletionTimestamp == nil && !away
}

// kubeletsReasons are the kubelet's reasons why a pod that runs isn't ready. The controller that marks
// the pods of a node that is gone keeps the reason, and a ready pod has none.
var kubeletsReasons = []string{"ContainersNotReady", "ReadinessGatesNotReady"}

// DrainerEnded tells whether the pod's drainer has ended.
func DrainerEnded(pod *corev1.Pod) bool { return PodEnded(pod) || Drainer(pod).Terminated != nil }

// ToldToEnd tells whether the pod was told to end: it was deleted or evicted, or its deadline or its node ended it. Many
// programs end with exit code 0 then, so the code alone says nothing about their work. The times of the API server and
// of nodes differ, so it doesn't matter which came first. While a container beside the drainer runs, the kubelet doesn't
// say yet that the deadline is over.
func ToldToEnd(pod *corev1.Pod) bool {
	disrupted := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
	return pod.DeletionTimestamp != nil || disrupted || pod.Status.Reason != "" || overdue(pod)
}

// overdue tells whether the pod's deadline was over when its drainer ended.
func overdue(pod *corev1.Pod) bool {
	ended, begun, deadline := Drainer(pod).Terminated, pod.Status.StartTime, pod.Spec.ActiveDeadlineSeconds
	return ended != nil && begun != nil && deadline != nil && !ended.FinishedAt.Time.Before(begun.Add(time.Duration(*deadline)*time.Second))
}

// Succeeded tells whether the pod's drainer ended by itself, with exit code 0.
func Succeeded(pod *corev1.Pod) bool {
	ended := Drainer(pod).Terminated
	return ended != nil && ended.ExitCode == 0 && !ToldToEnd(pod)
}

// PodEnded tells whether all containers of the pod have ended.
func PodEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// podEnds tells whether all containers of the pod have ended, and its phase doesn't say so yet.
func podEnds(pod *corev1.Pod) bool {
	containers := pod.Status.ContainerStatuses
	runs := func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil }
	return !PodEnded(pod) && pod.DeletionTimestamp == nil && len(containers) > 0 &&
		!slices.ContainsFunc(containers, runs) && !slices.ContainsFunc(pod.Status.InitContainerStatuses, runs)
}

// abandoned returns the Job's pod whose drainer failed, and that another container keeps running; or nil.
// Neither that pod nor its Job ends by itself. A pod that was told to end ends by itself, and so does a
// pod whose only sidecars are native ones (init containers).
func (o *Owner) abandoned(job *batchv1.Job, pods []corev1.Pod) *corev1.Pod {
	for i := range pods {
		pod := &pods[i]
		ended := Drainer(pod).Terminated
		if ended == nil || ended.ExitCode == 0 && o.goodReceipt(job, pods[i:i+1]) != nil ||
			PodEnded(pod) || ToldToEnd(pod) || !metav1.IsControlledBy(pod, job) {
			continue
		}
		if slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil }) {
			return pod
		}
	}
	return nil
}

// failAbandoned marks an abandoned Job as failed. Like any failed Job, it is deleted with its pod
// before the next attempt. Until then it may continue: when the pod ends, the Job's controller
// creates the next one.
func (o *Owner) failAbandoned(out *claims.Job, job *batchv1.Job, pods []corev1.Pod) {
	pod := o.abandoned(job, pods)
	if out.State != claims.JobActive || pod == nil {
		return
	}
	ended := Drainer(pod).Terminated
	out.State, out.PodKept, out.Ended = claims.JobFailed, true, ended.FinishedAt.Time
	out.Message = fmt.Sprintf("Job %s: the drainer ended with exit code %d, and another container keeps its pod running", job.Name, ended.ExitCode)
	out.Receipt, out.ReceiptErr = o.receipt(job, pod)
}

// initRuns returns the init container that the pod's drainer waits for, or nil. An init container that
// goes on running beside the drainer is ready then.
func initRuns(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.InitContainerStatuses {
		if c := &pod.Status.InitContainerStatuses[i]; c.State.Running != nil && !c.Ready {
			return c
		}
	}
	return nil
}

// initFailed says which init container made the last of the Job's pods fail before its drainer
// started, and how; empty if none did.
func initFailed(pods []corev1.Pod, job *batchv1.Job) (why string) {
	var last metav1.Time
	for i := range pods {
		pod := &pods[i]
		if !PodEnded(pod) || !metav1.IsControlledBy(pod, job) {
			continue
		}
		for j := range pod.Status.InitContainerStatuses {
			c := &pod.Status.InitContainerStatuses[j]
			ended := c.State.Terminated
			if ended == nil || ended.ExitCode == 0 || ended.FinishedAt.Before(&last) {
				continue
			}
			last, why = ended.FinishedAt, fmt.Sprintf("init container %s of pod %s ended with exit code %d", c.Name, pod.Name, ended.ExitCode)
			if ended.Message != "" {
				why += ": " + claims.Printable(ended.Message, maxInitWords)
			}
		}
	}
	return why
}

// maxInitWords bounds a quotation of an init container's message, in bytes.
const maxInitWords = 256
