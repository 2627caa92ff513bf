package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/metrics"
	"example.com/memcached-operator/controllers/internal/observe"
)

// Metrics counts what was done. A nil Metrics counts nothing.
type Metrics = metrics.Metrics

// NewMetrics registers the operator's metrics. Those about clusters are read at each
// scrape from the reader, the manager's cache.
func NewMetrics(registry prometheus.Registerer, reader client.Reader) (*Metrics, error) {
	return metrics.New(registry, reader, observe.MarkedAt)
}
