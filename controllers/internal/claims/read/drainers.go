package read

import (
	"cmp"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/identity"
)

// Waits tells why the active Job has no drainer at work: its pod waits, or the last pod failed and the
// next one is not created yet.
func (o *Owner) Waits(job *batchv1.Job, pods []corev1.Pod, now time.Time) (claims.Wait, bool) {
	last := o.lastAttempt(job, pods)
	for i := range pods {
		pod := &pods[i]
		if !metav1.IsControlledBy(pod, job) {
			continue
		}
		if wait, lingers := claims.DrainerDoesNotEnd(pod, o.Grace, now); lingers && !DrainerEnded(pod) {
			return wait, true
		}
		switch ended := Drainer(pod).Terminated; {
		case DrainerRuns(pod), Succeeded(pod):
			return claims.Wait{}, false
		case ended == nil && !PodEnded(pod):
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
	case last == "" && now.Before(created.Add(claims.StuckAfter)):
		return claims.Wait{}, false // the Job was just created
	case last == "":
		return claims.Wait{
			Reason: cachev1alpha1.ReasonNoPodYet, Message: fmt.Sprintf("Job %s has no pod yet, since %s", job.Name, created.UTC().Format(time.RFC3339)), Since: created,
		}, true
	}
	return claims.Wait{Reason: cachev1alpha1.ReasonRetrying, Message: last, Since: job.CreationTimestamp.Time}, true
}

// jobSuspended tells whether a queue or a person has suspended the Job, so that its controller
// creates no pod.
func jobSuspended(job *batchv1.Job) (claims.Wait, bool) {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue {
			return claims.Wait{
				Reason: cachev1alpha1.ReasonJobSuspended, Message: fmt.Sprintf("Job %s is suspended: %s", job.Name, cmp.Or(c.Message, c.Reason)), Since: c.LastTransitionTime.Time,
			}, true
		}
	}
	return claims.Wait{}, false
}

// SlowStart is how long a drainer's pod may take to start before status names the node that has not
// started it.
const SlowStart = 10 * time.Second

// podWaits tells why a pod doesn't run yet and since when, in the scheduler's or the kubelet's
// words. A node that doesn't answer reports nothing.
func podWaits(pod *corev1.Pod, now time.Time) claims.Wait {
	since := pod.CreationTimestamp.UTC().Format(time.RFC3339)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return claims.Wait{
				Reason: c.Reason, Message: fmt.Sprintf("the drainer has been waiting for a node since %s: %s", since, c.Message),
				Since: pod.CreationTimestamp.Time,
			}
		}
	}
	wait := claims.Wait{Since: pod.CreationTimestamp.Time}
	states := []corev1.ContainerState{Drainer(pod)} // the drainer starts after the init containers
	for _, c := range pod.Status.InitContainerStatuses {
		states = append(states, c.State)
	}
	for _, s := range states {
		if w := s.Waiting; w != nil && (wait.Message == "" || w.Message != "") {
			wait.Reason, wait.Message = w.Reason, w.Message
		}
	}
	switch slow := now.Sub(pod.CreationTimestamp.Time) >= SlowStart; {
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
func (o *Owner) lastAttempt(job *batchv1.Job, pods []corev1.Pod) string {
	failed := job.Status.Failed
	if failed == 0 {
		return ""
	}
	why := cmp.Or(initFailed(pods, job), "its pod is gone")
	if pod := lastEnded(pods, job); pod != nil {
		ended := Drainer(pod).Terminated
		why = fmt.Sprintf("exit code %d", ended.ExitCode)
		if r, err := o.receipt(job, pod); err == nil && r.Reason != "" {
			why = fmt.Sprintf("%s: %s", r.Reason, r.Message)
		}
		if ended.Reason == claims.OOMKilled {
			why = fmt.Sprintf("%s, %s%s", ended.Reason, why, o.MoreMemory)
		}
	}
	return fmt.Sprintf("failed attempts: %d, the last one: %s", failed, why)
}

// AsDrainer translates a pod for the plan; false if it is no drainer's, or its drainer has ended.
func AsDrainer(pod *corev1.Pod) (d claims.Drainer, is bool) {
	duty := identity.DutyOf(pod)
	if duty == (identity.Duty{}) || DrainerEnded(pod) {
		return d, false
	}
	return claims.Drainer{Pod: pod.Name, ClaimUID: duty.Claim, Target: duty.Target, Waits: duty.Waits, Running: AtWork(pod)}, true
}

// Mounted has the UIDs of the claims that pods of drainers mount, and of those whose drain is at work
// or has succeeded. A pod that has ended and is being deleted doesn't count: only another client's
// finalizer keeps it.
func Mounted(pods []corev1.Pod) (by, atWork []types.UID) {
	for i := range pods {
		pod := &pods[i]
		d := identity.DutyOf(pod)
		if PodEnded(pod) && pod.DeletionTimestamp != nil {
			continue
		}
		by = append(by, d.Claim)
		if d.Survivors > 0 && (DrainerRuns(pod) || Succeeded(pod)) {
			atWork = append(atWork, d.Claim)
		}
	}
	return by, atWork
}

// DrainerStarts returns how long it takes until status says that a drainer doesn't start, which no
// event will report; zero if no drainer is starting.
func DrainerStarts(pods []corev1.Pod, now time.Time) time.Duration {
	var wait time.Duration
	for i := range pods {
		left := pods[i].CreationTimestamp.Add(SlowStart).Sub(now)
		if pods[i].Status.Phase == corev1.PodPending && left > wait {
			wait = left
		}
	}
	return wait
}

// DrainerWaits tells why the drainers of active Jobs are not at work, by the claim's UID. refused has
// the pods that the API server refuses to create, by the claim's UID.
func (o *Owner) DrainerWaits(jobs *Jobs, refused map[types.UID]claims.Wait, now time.Time) map[types.UID]claims.Wait {
	waits := map[types.UID]claims.Wait{}
	for _, job := range jobs.Active() {
		wait, ok := o.Waits(job, jobs.Pods, now)
		if why, lacks := refused[identity.ClaimUID(job)]; lacks {
			wait, ok = why, true
		}
		if ok {
			waits[identity.ClaimUID(job)] = wait
		}
	}
	return waits
}
