package status

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/listen"
)

// Router is a router that can be asked for its state.
type Router interface {
	// Ready returns why clients should not use this router; nil if they can.
	Ready() error
	// HotKeys returns the keys that are asked for most.
	HotKeys() []HotKey
	// Report returns the metrics.
	Report() *Report
}

// Handler serves /ready, /metrics in Prometheus' text format, and /hot with the keys that are asked for most,
// in JSON.
func Handler(r Router) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /hot", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.HotKeys())
	})
	mux.Handle("GET "+contract.MetricsPath, listen.Metrics(func(to chan<- prometheus.Metric) { r.Report().Collect(to) }))
	return mux
}
