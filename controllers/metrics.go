package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/metrics"
	"example.com/memcached-operator/controllers/internal/stsdrain/apply"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// Metrics counts drains, moves and roll-outs. A nil Metrics counts nothing.
type Metrics = metrics.Metrics

// NewMetrics registers the operator's metrics. Memcacheds and StatefulSetDrains are read at each scrape
// from the reader, the manager's cache.
func NewMetrics(registry prometheus.Registerer, reader client.Reader) (*Metrics, error) {
	return metrics.New(registry, reader, read.MarkedAt)
}

// count counts what this reconcile has done.
func (r *MemcachedReconciler) count(o *outcome) {
	now := r.Clock.Now()
	for _, a := range o.done.Recorded {
		total, phases := o.DrainTimes(a.Claim, a.Receipt, now)
		r.Metrics.Drained(metrics.Memcached, a.Receipt, total, phases)
	}
	for _, a := range o.done.Released {
		r.Metrics.Released(metrics.Memcached, a, o.ReleaseTime(a.Claim, now))
	}
	for _, receipt := range o.done.Moved {
		r.Metrics.Moved(receipt)
	}
}

// count counts what this reconcile has done.
func (r *StatefulSetDrainReconciler) count(s *observe.State, done *apply.Done) {
	now := r.Clock.Now()
	for _, a := range done.Recorded {
		total, phases := s.DrainTimes(a.Claim, now)
		r.Metrics.Drained(metrics.StatefulSetDrain, a.Receipt, total, phases)
	}
	for _, a := range done.Released {
		r.Metrics.Released(metrics.StatefulSetDrain, a, s.ReleaseTime(a.Claim, now))
	}
}
