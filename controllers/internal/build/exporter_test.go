package build

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func TestExporterRunsBesideMemcachedOnRequest(t *testing.T) {
	for kind, pod := range pods(func(*cachev1alpha1.MemcachedSpec) {}) {
		if n := len(pod.Containers); n != 1 {
			t.Errorf("%s: %d containers that the spec does not ask for", kind, n-1)
		}
	}
	ask := func(s *cachev1alpha1.MemcachedSpec) {
		s.ContainerPort, s.Exporter = 11300, &cachev1alpha1.ExporterSpec{Port: 9200}
	}
	for kind, pod := range pods(ask) {
		if n := len(pod.Containers); n != 2 {
			t.Fatalf("%s: %d containers", kind, n)
		}
		exporter := pod.Containers[1]
		if diff := cmp.Diff([]string{"--memcached.address=localhost:11300", "--web.listen-address=:9200"}, exporter.Args); diff != "" {
			t.Errorf("%s: -want +got:\n%s", kind, diff)
		}
		if *exporter.Image != options.ExporterImage || *exporter.Ports[0].ContainerPort != 9200 {
			t.Errorf("%s: image %s, port %d", kind, *exporter.Image, *exporter.Ports[0].ContainerPort)
		}
	}
	ports := Service(withStorage().With(ask).Defaulted().Obj()).Spec.Ports
	if len(ports) != 2 || *ports[1].Name != "metrics" || *ports[1].Port != 9200 {
		t.Errorf("ports of the Service: %v", ports)
	}
}

func TestPrometheusReadsTheIntervalOfAServiceMonitor(t *testing.T) {
	for want, given := range map[string]time.Duration{"30s": 30 * time.Second, "90s": 90 * time.Second, "3600s": time.Hour, "1500ms": 1500 * time.Millisecond} {
		if got := prometheusDuration(given); got != want {
			t.Errorf("%v is %s, want %s", given, got, want)
		}
	}
}

func TestServiceMonitorSelectsTheServiceAndItsMetrics(t *testing.T) {
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Exporter = &cachev1alpha1.ExporterSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{
			Labels: map[string]string{"release": "prometheus", cachev1alpha1.LabelInstance: "another"}, Interval: &metav1.Duration{Duration: 15 * time.Second},
		}}
	}).Defaulted().Obj()
	m, service := ServiceMonitor(c), Service(c)
	want := map[string]any{"matchLabels": anyMap(service.Labels)}
	spec := m.Object["spec"].(map[string]any)
	if diff := cmp.Diff(want, spec["selector"]); diff != "" {
		t.Errorf("selector: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]any{map[string]any{"port": *service.Spec.Ports[1].Name, "path": "/metrics", "interval": "15s"}}, spec["endpoints"]); diff != "" {
		t.Errorf("endpoints: -want +got:\n%s", diff)
	}
	if l := m.GetLabels(); l["release"] != "prometheus" || l[cachev1alpha1.LabelInstance] != "cache" {
		t.Errorf("labels %v", l)
	}
	if m.GetOwnerReferences()[0].UID != c.UID {
		t.Errorf("owners %v", m.GetOwnerReferences())
	}
	c.Spec.Exporter.ServiceMonitor = nil
	if ServiceMonitor(c) != nil {
		t.Error("there is one that the spec does not ask for")
	}
}
