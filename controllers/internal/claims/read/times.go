package read

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
)

// Drainings are the Jobs of drains and their pods, which tell how long drains took. Kubernetes rounds its
// times to whole seconds.
type Drainings struct {
	Jobs []batchv1.Job
	Pods []corev1.Pod
}

// Times returns how long the drain of a claim took until now, and how long each phase took. left is when
// the claim's member left; if it is zero, total is 0, and Waiting is not known.
func (d Drainings) Times(claim types.UID, left, now time.Time) (total time.Duration, phases map[string]time.Duration) {
	phases = map[string]time.Duration{}
	if !left.IsZero() {
		total = max(time.Millisecond, now.Sub(left))
	}
	for i := range d.Jobs {
		job := &d.Jobs[i]
		if identity.ClaimUID(job) != claim {
			continue
		}
		if !left.IsZero() {
			phases[string(cachev1alpha1.DrainWaiting)] = job.CreationTimestamp.Sub(left)
		}
		if ended := LastEnded(d.Pods, job); ended != nil && !ended.StartedAt.IsZero() {
			phases[string(cachev1alpha1.DrainStarting)] = ended.StartedAt.Sub(job.CreationTimestamp.Time)
			phases[string(cachev1alpha1.DrainAdding)] = ended.FinishedAt.Sub(ended.StartedAt.Time)
		}
	}
	return total, phases
}

// SinceEnd is how long ago the claim's drainer ended, as the duration of the phase Releasing; nil if the
// end is not known.
func (d Drainings) SinceEnd(claim types.UID, now time.Time) map[string]time.Duration {
	for i := range d.Jobs {
		job := &d.Jobs[i]
		if ended := LastEnded(d.Pods, job); identity.ClaimUID(job) == claim && ended != nil {
			return map[string]time.Duration{string(cachev1alpha1.DrainReleasing): now.Sub(ended.FinishedAt.Time)}
		}
	}
	return nil
}
