package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/memcached-operator/controllers/internal/build"
)

// firstPodWithin is how soon after a claim its first pod is created, because the StatefulSet's
// controller creates them together. A pod that was created later may not be the first.
const firstPodWithin = 10 * time.Second

// neverStarted tells whether the member's first pod has not started a container, or is not created
// yet. An autoscaler that scales back soon removes members that never ran. Their volumes are empty,
// and a drainer finds no file there. The drainer is told so, and still looks for traces of items.
func neverStarted(pods []corev1.Pod, cluster string, ordinal int32, claim *corev1.PersistentVolumeClaim, now time.Time) bool {
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == build.PodName(cluster, ordinal) })
	if i < 0 {
		return now.Sub(claim.CreationTimestamp.Time) <= firstPodWithin
	}
	if pods[i].CreationTimestamp.Sub(claim.CreationTimestamp.Time) > firstPodWithin {
		return false
	}
	started := func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState != corev1.ContainerState{} || c.RestartCount > 0
	}
	s := &pods[i].Status
	return s.Phase == corev1.PodPending && !slices.ContainsFunc(s.ContainerStatuses, started)
}
