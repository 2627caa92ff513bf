package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/metrics"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// Metrics counts what was done. A nil Metrics counts nothing.
type Metrics = metrics.Metrics

// NewMetrics registers the operator's metrics. Those of the clusters that there
// are come from the reader at each scrape: the manager's cache.
func NewMetrics(registry prometheus.Registerer, reader client.Reader) (*Metrics, error) {
	return metrics.New(registry, reader, markedAt)
}

// drainTimes are how long the phases of a drain took whose Job is complete, and
// all of it until now. Kubernetes tells its times in whole seconds.
func (o *observed) drainTimes(claim plan.ClaimRef, receipt *contract.Receipt, now time.Time) (total time.Duration, phases map[string]time.Duration) {
	phases = map[string]time.Duration{}
	for _, phase := range []contract.Phase{contract.PhaseConnecting, contract.PhaseMoving} {
		phases[string(phase)] = time.Duration(receipt.Seconds[phase] * float64(time.Second))
	}
	leaving := o.leavingSince(claim)
	if !leaving.IsZero() {
		total = max(time.Millisecond, now.Sub(leaving))
	}
	for i := range o.jobs {
		job := &o.jobs[i]
		if identity.ClaimUID(job) != claim.UID {
			continue
		}
		if !leaving.IsZero() {
			phases[string(cachev1alpha1.DrainWaiting)] = job.CreationTimestamp.Sub(leaving)
		}
		if ended := lastEnded(o.drainerPods, job); ended != nil && !ended.StartedAt.IsZero() {
			phases[string(cachev1alpha1.DrainStarting)] = ended.StartedAt.Sub(job.CreationTimestamp.Time)
		}
	}
	return total, phases
}

// releaseTime is how long it took to let go of a claim since its drainer ended.
func (o *observed) releaseTime(claim plan.ClaimRef, now time.Time) map[string]time.Duration {
	for i := range o.jobs {
		job := &o.jobs[i]
		if ended := lastEnded(o.drainerPods, job); identity.ClaimUID(job) == claim.UID && ended != nil {
			return map[string]time.Duration{string(cachev1alpha1.DrainReleasing): now.Sub(ended.FinishedAt.Time)}
		}
	}
	return nil
}

// leavingSince is when the claim's member left, zero where nobody knows.
func (o *observed) leavingSince(ref plan.ClaimRef) time.Time {
	for i := range o.claims {
		if c := &o.claims[i]; c.UID == ref.UID {
			return markedAt(c)
		}
	}
	return time.Time{}
}

// markedAt is the time in a claim's leaving mark, zero where there is none
// that can be read.
func markedAt(c *corev1.PersistentVolumeClaim) time.Time {
	if t, ok := markTime(c.Annotations[cachev1alpha1.AnnotationLeaving]); ok {
		return t
	}
	return time.Time{}
}
