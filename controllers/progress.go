package controllers

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/plan"
)

// What drainers and members are asked, and by whom.
type (
	// ProgressReader returns the last progress line of a drainer's pod, or nil.
	ProgressReader = ask.ProgressReader
	// MemoryReader asks the member at host:port.
	MemoryReader = ask.MemoryReader
	// Memory of a member, in bytes.
	Memory = ask.Memory
)

// ProgressFromLogs reads a drainer's progress from the end of its log, through
// the API server, so that the drainer needs no credentials and no port.
func ProgressFromLogs(clients kubernetes.Interface) ProgressReader {
	return ask.ProgressFromLogs(clients)
}

// MemoryFromStats asks the member itself: it takes no credentials, only that the
// operator may reach it.
func MemoryFromStats(ctx context.Context, address string) (Memory, error) {
	return ask.MemoryFromStats(ctx, address)
}

// observeProgress has what is known of the drainers' progress, which is nice to have:
// where it can't be read, the drain goes on and shows none.
func (r *MemcachedReconciler) observeProgress(key client.ObjectKey, o *observed) {
	claims := map[types.UID]types.UID{}
	var pods []*corev1.Pod
	for _, job := range o.activeJobs() {
		for i := range o.drainerPods {
			if pod := &o.drainerPods[i]; metav1.IsControlledBy(pod, job) && drainerRuns(pod) {
				pods = append(pods, pod)
				claims[pod.UID] = identity.ClaimUID(job)
			}
		}
	}
	for pod, progress := range r.progress.Want(key, pods...) {
		o.progress[claims[pod]] = progress
	}
}

// activeJobs are the drains and placements that have not ended.
func (o *observed) activeJobs() []*batchv1.Job {
	var active []*batchv1.Job
	for _, jobs := range [][]batchv1.Job{o.jobs, o.placements} {
		for i := range jobs {
			if jobState(&jobs[i]) == plan.JobActive {
				active = append(active, &jobs[i])
			}
		}
	}
	return active
}
