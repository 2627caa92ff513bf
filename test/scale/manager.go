package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/memcached-operator/test/internal/harness"
)

// manager is bin/manager, as its own process.
type manager struct {
	*child
	metrics, probes, pprof string
	started                time.Time
}

// startManager starts the manager as its service account, with further flags.
func startManager(c *controlPlane, program string, flags ...string) (*manager, error) {
	kubeconfig, err := c.kubeconfig(managerToken)
	if err != nil {
		return nil, err
	}
	var addresses [3]string
	for i := range addresses {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	m := &manager{metrics: addresses[0], probes: addresses[1], pprof: addresses[2], started: time.Now()}
	m.child, err = start(c.dir, "manager", []string{"KUBECONFIG=" + kubeconfig}, append([]string{
		program,
		"--metrics-secure=false", "--metrics-bind-address=" + m.metrics,
		"--health-probe-bind-address=" + m.probes, "--pprof-bind-address=" + m.pprof,
		"--memcached-image=memcached:scale", "--operator-image=memcached-operator:scale",
	}, flags...)...)
	return m, err
}

// load has the manager's work and usage since its start.
type load struct {
	reconciles, errors, cpu float64
	depth, active           float64
	// waits has how long keys waited in the queue: cumulative counts by the upper bound in seconds.
	waits     map[float64]float64
	waitedFor float64
	waitCount float64
	memory    harness.Memory
}

// load reads the manager's metrics and memory.
func (m *manager) load(ctx context.Context) (*load, error) {
	families, err := m.scrape(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the manager's metrics: %w", err), m.ended())
	}
	l := &load{
		reconciles: sum(families["controller_runtime_reconcile_total"]),
		errors:     sum(families["controller_runtime_reconcile_errors_total"]),
		cpu:        sum(families["process_cpu_seconds_total"]),
		depth:      sum(families["workqueue_depth"]),
		active:     sum(families["controller_runtime_active_workers"]),
		waits:      map[float64]float64{},
	}
	if f := families["workqueue_queue_duration_seconds"]; f != nil {
		for _, metric := range f.Metric {
			h := metric.GetHistogram()
			l.waitedFor += h.GetSampleSum()
			l.waitCount += float64(h.GetSampleCount())
			for _, b := range h.Bucket {
				l.waits[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
	}
	l.memory, err = harness.MemoryOf(m.PID())
	return l, err
}

func (m *manager) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	body, err := fetch(ctx, "http://"+m.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(url + ": " + response.Status)
	}
	return io.ReadAll(response.Body)
}

// sum returns that of a family's values: queues of several priorities, or results of several kinds.
func sum(f *dto.MetricFamily) float64 {
	total := 0.0
	for _, metric := range f.GetMetric() {
		total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
	}
	return total
}

// resetPeak makes the kernel forget the peak so far: proc(5), clear_refs.
func (m *manager) resetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.PID()), []byte("5"), 0)
}

// waitQuantile returns an upper bound, in seconds, of how long a share q of the keys waited for a worker.
func waitQuantile(now, before *load, q float64) float64 {
	total := now.waitCount - before.waitCount
	for _, bound := range slices.Sorted(maps.Keys(now.waits)) {
		if now.waits[bound]-before.waits[bound] >= q*total {
			return bound
		}
	}
	return 0
}

// profile saves a profile of the manager.
func (m *manager) profile(ctx context.Context, dir, name, kind string) error {
	if dir == "" {
		return nil
	}
	body, err := fetch(ctx, "http://"+m.pprof+"/debug/pprof/"+kind)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".pprof"), body, 0o600)
}
