package member

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// everything has a number for each statistic that a metric is made of.
func everything() *statistics {
	all := &statistics{general: map[string]string{"version": "1.6.18", "cmd_set": "1"}, settings: map[string]string{"lru_crawler": "yes", "maxconns": "1"},
		items: map[string]string{}, slabs: map[string]string{"total_malloced": "1", "7:cmd_set": "1"}}
	for _, of := range []struct {
		answer map[string]string
		prefix string
		names  []statistic
	}{{all.general, "", generalStats}, {all.settings, "", crawlerStats}, {all.items, "items:7:", itemsStats}, {all.slabs, "7:", slabsStats}} {
		for _, s := range of.names {
			if of.answer[of.prefix+s.name] == "" {
				of.answer[of.prefix+s.name] = "1"
			}
		}
	}
	return all
}

// Dashboards and alerts for Prometheus' exporter work with a member's metrics. Only ours are added.
func TestTheMetricsHaveTheExportersNamesTypesAndLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(testCollector(func(to chan<- prometheus.Metric) {
		memcachedUp.send(to, 1)
		everything().collect(to)
	}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		words := []string{f.GetName(), strings.ToLower(f.GetType().String())}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		got = append(got, strings.Join(append(words, labels...), " "))
	}
	text, err := os.ReadFile("testdata/memcached_exporter.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); words[0] != "#" {
			slices.Sort(words[2:])
			want = append(want, strings.Join(words, " "))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-the exporter's +a member's:\n%s", diff)
	}
}

type testCollector func(to chan<- prometheus.Metric)

func (testCollector) Describe(chan<- *prometheus.Desc)      {}
func (c testCollector) Collect(to chan<- prometheus.Metric) { c(to) }

// A server that answers anything is measured as far as it can be.
func TestStatisticsThatAreNoNumbersAreLeftOut(t *testing.T) {
	all := everything()
	all.general["curr_items"], all.general["version"] = "many", strings.Repeat("é", 40)+"\xff"
	delete(all.general, "cas_hits")
	delete(all.settings, "lru_crawler")
	metrics := make(chan prometheus.Metric, 1000)
	all.collect(metrics)
	close(metrics)
	n := 0
	for m := range metrics {
		n++
		var d dto.Metric
		if err := m.Write(&d); err != nil {
			t.Error(err)
		}
		for _, left := range []string{"memcached_current_items", "memcached_lru_crawler_enabled"} {
			if strings.Contains(m.Desc().String(), `"`+left+`"`) {
				t.Errorf("%s is there", left)
			}
		}
		for _, l := range d.GetLabel() {
			if l.GetName() == "command" && l.GetValue() == "set" && len(d.GetLabel()) == 2 {
				t.Error("sets are counted without knowing how many are cas")
			}
		}
	}
	if n < 80 {
		t.Errorf("%d metrics only", n)
	}
}

// docs/metrics.md names the metrics that are added to the exporter's, and no others.
func TestOurMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bmemcached_member_[a-z_]+`)
	var described, documented []string
	for _, d := range MetricDescs() {
		described = append(described, names.FindAllString(d.String(), -1)...)
	}
	documented = names.FindAllString(string(text), -1)
	slices.Sort(described)
	slices.Sort(documented)
	if diff := cmp.Diff(described, slices.Compact(documented)); diff != "" || len(described) == 0 {
		t.Errorf("-served +documented:\n%s", diff)
	}
}
