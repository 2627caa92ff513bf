package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/receipt"
	"example.com/memcached-operator/drainer/contract"
)

// observeJobs reads the Jobs of drains and moves, and the pods of those that have
// ended.
func (r *Reader) observeJobs(ctx context.Context, key client.ObjectKey, o *State) error {
	var jobs batchv1.JobList
	if err := r.list(ctx, key, &jobs); err != nil {
		return err
	}
	r.see(key, kindJobs, namesOf(jobs.Items))
	o.Progress = map[types.UID]contract.Progress{}
	o.Obstructed = r.Obstructed.Known(key, o.Now)
	if r.Options != nil && len(jobs.Items) > 0 {
		o.DrainerTemplate = build.DrainerTemplate(o.Cluster, *r.Options)
	}
	if len(jobs.Items) > 0 && o.Cluster.DeletionTimestamp == nil {
		o.PortsMark = o.Ports(o.Cluster).Mark(o.Cluster)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		switch {
		case !identity.OwnJob(o.Cluster, job):
			continue
		case gone(job, o.DrainerPods):
			o.EndedJobs = append(o.EndedJobs, *job)
			continue
		}
		if identity.Moves(job) {
			o.Moves = append(o.Moves, *job)
		} else {
			o.Jobs = append(o.Jobs, *job)
		}
		if jobState(job) == claims.JobActive {
			continue
		}
		if lastEnded(o.DrainerPods, job) == nil && initFailed(o.DrainerPods, job) == "" {
			// The cache may have the end of the Job before the end of its pod.
			var pods corev1.PodList
			err := r.Live.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
			if err != nil {
				return fmt.Errorf("list the pods of Job %s: %w", job.Name, err)
			}
			o.DrainerPods = slices.DeleteFunc(o.DrainerPods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) })
			for _, pod := range pods.Items {
				if metav1.IsControlledBy(&pod, job) {
					o.DrainerPods = append(o.DrainerPods, pod)
				}
			}
		}
	}
	if err := r.dropForeign(ctx, o); err != nil {
		return err
	}
	r.observeProgress(key, o)
	return nil
}

// gone tells whether only another owner's finalizer keeps the Job: the Job was deleted, and it and
// all its pods have ended.
func gone(job *batchv1.Job, pods []corev1.Pod) bool {
	return job.DeletionTimestamp != nil && jobState(job) != claims.JobActive &&
		!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, job) && !podEnded(&p) })
}

// dropForeign drops the pods whose Jobs look like the cluster's but belong to another owner. It
// reads a Job live if the cache lacks it; usually the Job is gone. A pod that has ended and is
// being deleted doesn't matter, so its Job is not read.
func (r *Reader) dropForeign(ctx context.Context, o *State) error {
	known := map[types.UID]bool{}
	for _, job := range slices.Concat(o.Jobs, o.Moves, o.EndedJobs) {
		known[job.UID] = true
	}
	var unknown []corev1.Pod
	for i := range o.DrainerPods {
		pod := &o.DrainerPods[i]
		gone := podEnded(pod) && pod.DeletionTimestamp != nil
		if !gone && !known[metav1.GetControllerOfNoCopy(pod).UID] {
			unknown = append(unknown, o.DrainerPods[i])
		}
	}
	live, names := &View{foreign: map[types.UID]bool{}, seen: map[types.UID]bool{}}, []string(nil)
	for i := range unknown {
		names = append(names, metav1.GetControllerOfNoCopy(&unknown[i]).Name)
	}
	if err := r.readByName(ctx, o.Cluster, live, names); err != nil {
		return err
	}
	foreign := live.foreign
	o.Unlabelled = append(o.Unlabelled, live.Unlabelled...)
	for i := range o.EndedJobs { // the pods of these Jobs have ended, too
		foreign[o.EndedJobs[i].UID] = true
	}
	o.DrainerPods = slices.DeleteFunc(o.DrainerPods, func(pod corev1.Pod) bool {
		return foreign[metav1.GetControllerOfNoCopy(&pod).UID]
	})
	return nil
}

// PlanJob translates the Job, with its receipt, for the plan.
func PlanJob(job *batchv1.Job, pods []corev1.Pod) claims.Job {
	d := identity.DutyOf(job)
	out := claims.Job{
		Name:      job.Name,
		UID:       job.UID,
		ClaimUID:  d.Claim,
		Survivors: action.Range{Count: d.Survivors},
		Target:    d.Target,
		Waits:     d.Waits,
		State:     jobState(job),
		Deleting:  job.DeletionTimestamp != nil,
	}
	failAbandoned(&out, job, pods)
	if good := goodReceipt(job, pods); out.State == claims.JobActive && good != nil {
		out.State, out.Receipt = claims.JobComplete, good
	}
	if out.State == claims.JobActive || out.Receipt != nil || !out.Ended.IsZero() {
		return out
	}
	out.Message, out.Ended = jobMessage(job), jobEnded(job)
	ended := lastEnded(pods, job)
	if why := initFailed(pods, job); ended == nil && out.Message != "" && why != "" {
		out.Message += ": " + why
	}
	out.Receipt, out.ReceiptErr = podReceipt(ended)
	return out
}

// drainers returns the drainers that have not ended, for the plan.
func drainers(pods []corev1.Pod, progress map[types.UID]contract.Progress, now time.Time) []claims.Drainer {
	var found []claims.Drainer
	for i := range pods {
		pod := &pods[i]
		if d := identity.DutyOf(pod); d != (identity.Duty{}) && !DrainerEnded(pod) {
			found = append(found, claims.Drainer{
				Pod: pod.Name, ClaimUID: d.Claim, Target: d.Target, Waits: d.Waits, Running: atWork(pod),
				Prepared: d.Target != "" && atWork(pod) && !preparedAt(pod, progress[d.Claim]).After(now),
				Settles:  d.Target != "" && progress[d.Claim].NothingLeft,
			})
		}
	}
	return found
}

const (
	// startedFor is how long a drainer must run before it counts as prepared. The kubelet updates
	// the drainer's annotation late while it still starts the pod: with one second instead of two,
	// a scaling lost 0.35 s of hits instead of 0.02 s.
	startedFor = 2 * time.Second
	// preparedAfter is when a running drainer counts as prepared if it reports nothing.
	preparedAfter = 4 * time.Second
)

// preparedAt is when a move's running drainer counts as prepared: it has reported that it is
// connected to all servers, or has had the time for that. Kubernetes rounds the start to whole
// seconds.
func preparedAt(pod *corev1.Pod, progress contract.Progress) time.Time {
	after := preparedAfter
	if progress.Phase != "" && progress.Phase != contract.PhaseConnecting {
		after = startedFor
	}
	return drainerOf(pod).Running.StartedAt.Add(after)
}

// MoversPrepare returns how long it takes until the next waiting mover counts as prepared, which no
// event will report; zero if there is none.
func (o *State) MoversPrepare(now time.Time) time.Duration {
	var wait time.Duration
	for i := range o.DrainerPods {
		pod := &o.DrainerPods[i]
		d := identity.DutyOf(pod)
		if !d.Waits || !drainerRuns(pod) {
			continue
		}
		if left := preparedAt(pod, o.Progress[d.Claim]).Sub(now); left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	return wait
}

// goodReceipt is the receipt of a drainer of exactly this Job that succeeded, or nil. The Job's
// controller needs another second or two to report the success, and starts no other pod meanwhile.
func goodReceipt(job *batchv1.Job, pods []corev1.Pod) *action.Receipt {
	for i := range pods {
		pod := &pods[i]
		if ended := drainerOf(pod).Terminated; ended == nil || ended.ExitCode != 0 || !metav1.IsControlledBy(pod, job) {
			continue
		}
		r, err := podReceipt(lastEnded(pods[i:i+1], job))
		if err == nil && r.AddsUp(identity.DutyOf(job).Source()) == nil {
			return r
		}
	}
	return nil
}

func jobState(job *batchv1.Job) claims.JobState {
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

// jobEnded is when the Job ended; zero if it has not.
func jobEnded(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func jobMessage(job *batchv1.Job) string {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("Job %s: %s: %s", job.Name, c.Reason, c.Message)
		}
	}
	return ""
}

// lastEnded returns the state of the Job's drainer that ended last, or nil. A drainer that
// succeeded comes before all others.
func lastEnded(pods []corev1.Pod, job *batchv1.Job) *corev1.ContainerStateTerminated {
	var last *corev1.ContainerStateTerminated
	for i := range pods {
		pod := &pods[i]
		if !metav1.IsControlledBy(pod, job) {
			continue
		}
		t := drainerOf(pod).Terminated
		if t == nil {
			continue
		}
		if last == nil || t.ExitCode == 0 || last.ExitCode != 0 && last.FinishedAt.Before(&t.FinishedAt) {
			last = t
		}
	}
	return last
}

func podReceipt(ended *corev1.ContainerStateTerminated) (*action.Receipt, error) {
	if ended == nil {
		return nil, fmt.Errorf("the drainer's pod is gone, and its receipt with it")
	}
	return receipt.Parse(ended.Message)
}

// DrainerStarts returns how long it takes until status says that a drainer doesn't start, which no
// event will report; zero if no drainer is starting.
func (o *State) DrainerStarts(now time.Time) time.Duration {
	var wait time.Duration
	for i := range o.DrainerPods {
		left := o.DrainerPods[i].CreationTimestamp.Add(slowStart).Sub(now)
		if o.DrainerPods[i].Status.Phase == corev1.PodPending && left > wait {
			wait = left
		}
	}
	return wait
}
