package integration

import (
	"fmt"
	"strings"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// metrics returns the metrics of the running operator that are not 0; for a histogram, the number of its
// observations. A key is the name and the labels' values, by label name, without the world's namespace.
func (w *world) metrics() map[string]float64 {
	w.Helper()
	families, err := w.operator.Metrics.Gather()
	if err != nil {
		w.Fatalf("gather the metrics: %v", err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := []string{strings.TrimPrefix(f.GetName(), "memcached_operator_")}
			for _, l := range m.GetLabel() {
				if l.GetValue() != w.namespace {
					key = append(key, l.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				values[strings.Join(key, " ")] = value
			}
		}
	}
	return values
}

// metricsAre waits until these metrics have these values.
func (w *world) metricsAre(want map[string]float64) {
	w.Helper()
	w.eventually(fmt.Sprintf("metrics %v", want), func() error {
		got := w.metrics()
		for key, value := range want {
			if got[key] != value {
				return fmt.Errorf("%s is %v, want %v; all: %v", key, got[key], value, got)
			}
		}
		return nil
	})
}

func TestMetricsCountEachDrainOnce(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.metricsAre(map[string]float64{"members_wanted Memcached cache": 3, "members_ready Memcached cache": 3, "condition Memcached cache Ready Available": 1, "claims_held Memcached cache": 0})
	kubes.Play(w.namespace, player.Hang)
	w.scale(1)
	w.metricsAre(map[string]float64{
		"drains_open Memcached cache Starting": 1, "drains_open Memcached cache Waiting": 1, "claims_held Memcached cache": 2, "condition Memcached cache Draining Draining": 1,
	})

	kubes.Play(w.namespace, player.Succeed(10))
	w.settled(1)
	drained := map[string]float64{
		"drains_total Memcached Drained": 2, "claims_released_total Memcached Drained": 2,
		"drain_items_total added": 20, "drain_added_bytes_total": 2000,
		"drain_duration_seconds Memcached": 2, "drain_phase_duration_seconds Memcached Waiting": 2, "drain_phase_duration_seconds Memcached Starting": 2,
		"drain_phase_duration_seconds Memcached Connecting": 2, "drain_phase_duration_seconds Memcached Adding": 2, "drain_phase_duration_seconds Memcached Releasing": 2,
		"drains_total Memcached Failed": 0, "claims_held Memcached cache": 0, "oldest_held_claim_age_seconds Memcached cache": 0,
		"drains_open Memcached cache Starting": 0, "drains_open Memcached cache Waiting": 0, "drains_open Memcached cache Releasing": 0,
	}
	w.metricsAre(drained)
	w.quiet()
	w.reconcile()
	w.metricsAre(drained)

	w.restartOperator()
	w.settled(1)
	w.quiet()
	for key, value := range w.metrics() {
		if strings.HasPrefix(key, "drain") || strings.HasPrefix(key, "claims_released") {
			t.Errorf("an operator that did nothing counts %s %v", key, value)
		}
	}
	w.delete(w.memcached())
	w.eventually("no series of a cluster that is gone", func() error {
		for key, value := range w.metrics() {
			if strings.Contains(key, " cache") {
				return fmt.Errorf("%s %v", key, value)
			}
		}
		return nil
	})
	w.metricsAre(map[string]float64{"claims_released_total Memcached ClusterDeleted": 1, "drains_total Memcached Drained": 0})
}

func TestMetricsCountEachFailedDrain(t *testing.T) {
	tier.Second(t, "TestMetricsCountEachDrainOnce")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		r := player.Receipt(d, 10)
		r.Added, r.Rejected, r.Reason, r.Message, r.ExitCode = 7, 3, "ItemsRejected", "too large", contract.ExitUsage
		return player.Act{ExitCode: contract.ExitUsage, Message: player.Message(r)}
	})
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	failed := map[string]float64{
		"drains_total Memcached Failed": 1, "drain_items_total rejected": 3, "drain_items_total added": 0,
		"drains_open Memcached cache Failed": 1, "claims_held Memcached cache": 1, "condition Memcached cache DrainFailed Degraded": 1,
	}
	w.metricsAre(failed)
	w.quiet()
	w.metricsAre(failed)
	w.restartOperator()
	w.quiet()
	w.metricsAre(map[string]float64{"drains_total Memcached Failed": 0, "drains_open Memcached cache Failed": 1})

	kubes.Play(w.namespace, player.Hang)
	w.annotate(2, cachev1alpha1.DrainSkip)
	w.settled(2)
	w.metricsAre(map[string]float64{"drains_total Memcached Skipped": 1, "claims_released_total Memcached Skipped": 1, "claims_held Memcached cache": 0, "drain_duration_seconds Memcached": 0})
}
