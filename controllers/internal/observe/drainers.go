package observe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/status"
)

// DrainerWaits tells why the drainers of active Jobs are not at work, by the claim's UID: the pod
// waits, or the last pod failed and the next one is not created yet.
func (o *State) DrainerWaits(now time.Time) map[types.UID]status.Wait {
	waits := map[types.UID]status.Wait{}
	jobs := slices.Concat(o.Jobs, o.Moves)
	for i := range jobs {
		job := &jobs[i]
		if jobState(job) != claims.JobActive {
			continue
		}
		wait, ok := jobWaits(o.Cluster, job, o.DrainerPods, now)
		if refused, lacks := o.DrainersNotCreated[identity.ClaimUID(job)]; lacks {
			wait, ok = refused, true
		}
		if ok {
			waits[identity.ClaimUID(job)] = wait
		}
	}
	return waits
}

func jobWaits(cluster *cachev1alpha1.Memcached, job *batchv1.Job, pods []corev1.Pod, now time.Time) (status.Wait, bool) {
	last := lastAttempt(cluster, job, pods)
	for i := range pods {
		pod := &pods[i]
		if !metav1.IsControlledBy(pod, job) {
			continue
		}
		if wait, lingers := status.DoesNotEnd(cluster, pod, now); lingers && !DrainerEnded(pod) {
			return wait, true
		}
		switch ended := drainerOf(pod).Terminated; {
		case drainerRuns(pod), ended != nil && ended.ExitCode == 0:
			return status.Wait{}, false
		case ended == nil && !podEnded(pod):
			if pod.DeletionTimestamp != nil {
				continue
			}
			wait := podWaits(pod, now)
			if last != "" {
				wait.Message = last + "; now: " + cmp.Or(wait.Message, "its pod "+pod.Name+" is being started")
			}
			return wait, true
		}
	}
	if wait, suspended := jobSuspended(job); suspended {
		return wait, true
	}
	switch created := job.CreationTimestamp.Time; {
	case last == "" && now.Before(created.Add(status.StuckAfter)):
		return status.Wait{}, false // the Job was just created
	case last == "":
		return status.Wait{
			Reason: cachev1alpha1.ReasonNoPodYet, Message: fmt.Sprintf("Job %s has no pod yet, since %s", job.Name, created.UTC().Format(time.RFC3339)), Since: created,
		}, true
	}
	return status.Wait{Reason: cachev1alpha1.ReasonRetrying, Message: last, Since: job.CreationTimestamp.Time}, true
}

// jobSuspended tells whether a queue or a person has suspended the Job, so that its controller
// creates no pod.
func jobSuspended(job *batchv1.Job) (status.Wait, bool) {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue {
			return status.Wait{
				Reason: cachev1alpha1.ReasonJobSuspended, Message: fmt.Sprintf("Job %s is suspended: %s", job.Name, cmp.Or(c.Message, c.Reason)), Since: c.LastTransitionTime.Time,
			}, true
		}
	}
	return status.Wait{}, false
}

// slowStart is how long a drainer's pod may take to start before status names the node that has not
// started it.
const slowStart = 10 * time.Second

// podWaits tells why a pod doesn't run yet and since when, in the scheduler's or the kubelet's
// words. A node that doesn't answer reports nothing.
func podWaits(pod *corev1.Pod, now time.Time) status.Wait {
	since := pod.CreationTimestamp.UTC().Format(time.RFC3339)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return status.Wait{
				Reason: c.Reason, Message: fmt.Sprintf("the drainer has been waiting for a node since %s: %s", since, c.Message),
				Since: pod.CreationTimestamp.Time,
			}
		}
	}
	wait := status.Wait{Since: pod.CreationTimestamp.Time}
	states := []corev1.ContainerState{drainerOf(pod)} // the drainer starts after the init containers
	for _, c := range pod.Status.InitContainerStatuses {
		states = append(states, c.State)
	}
	for _, s := range states {
		if w := s.Waiting; w != nil && (wait.Message == "" || w.Message != "") {
			wait.Reason, wait.Message = w.Reason, w.Message
		}
	}
	switch slow := now.Sub(pod.CreationTimestamp.Time) >= slowStart; {
	case wait.Message != "":
		wait.Message = fmt.Sprintf("pod %s: %s", pod.Name, wait.Message)
	case slow && initRuns(pod) != nil:
		c := initRuns(pod)
		wait.Message = fmt.Sprintf("pod %s: init container %s has been running since %s, and the drainer starts after it",
			pod.Name, c.Name, c.State.Running.StartedAt.UTC().Format(time.RFC3339))
	case slow && pod.Spec.NodeName != "":
		wait.Message = fmt.Sprintf("node %s has not started the drainer, which has been waiting since %s", pod.Spec.NodeName, since)
	case wait.Reason != "":
		wait.Message = fmt.Sprintf("pod %s: its container is being created", pod.Name)
	}
	return wait
}

// lastAttempt says how the last attempt of an active Job failed; empty if none has.
func lastAttempt(cluster *cachev1alpha1.Memcached, job *batchv1.Job, pods []corev1.Pod) string {
	failed := job.Status.Failed
	if failed == 0 {
		return ""
	}
	why := cmp.Or(initFailed(pods, job), "its pod is gone")
	if ended := lastEnded(pods, job); ended != nil {
		why = fmt.Sprintf("exit code %d", ended.ExitCode)
		if r, err := podReceipt(ended); err == nil && r.Reason != "" {
			why = fmt.Sprintf("%s: %s", r.Reason, r.Message)
		}
		if ended.Reason == status.OOMKilled {
			why = fmt.Sprintf("%s, %s%s", ended.Reason, why, status.MoreMemory(cluster.Spec.Drain.Resources.Limits, "spec.drain.resources"))
		}
	}
	return fmt.Sprintf("failed attempts: %d, the last one: %s", failed, why)
}
