package build

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// With storage and without, with logins and TLS and without, the supervisor serves metrics if the spec asks for them.
func TestMembersServeMetricsOnRequest(t *testing.T) {
	secure := func(s *cachev1alpha1.MemcachedSpec) {
		s.TLS, s.Auth = &cachev1alpha1.TLSSpec{SecretName: "tls"}, &cachev1alpha1.AuthSpec{SecretName: "logins"}
	}
	ask := func(s *cachev1alpha1.MemcachedSpec) {
		s.ContainerPort, s.Metrics = 11300, &cachev1alpha1.MetricsSpec{Port: 9200}
	}
	for what, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		want   int32
	}{
		"not asked for":            {func(*cachev1alpha1.MemcachedSpec) {}, 0},
		"not asked for, secured":   {secure, 0},
		"asked for":                {ask, 9200},
		"asked for, and secured":   {func(s *cachev1alpha1.MemcachedSpec) { ask(s); secure(s) }, 9200},
		"asked for at the default": {func(s *cachev1alpha1.MemcachedSpec) { s.Metrics = &cachev1alpha1.MetricsSpec{} }, 9150},
	} {
		for kind, pod := range pods(test.change) {
			memcached := pod.Containers[0]
			served := int32(0)
			for _, port := range memcached.Ports {
				if *port.Name == "metrics" {
					served = *port.ContainerPort
				}
			}
			told := slices.Contains(memcached.Command, fmt.Sprintf("--metrics-port=%d", test.want))
			if n := len(pod.Containers); n != 1 || served != test.want || told != (test.want != 0) {
				t.Errorf("%s, %s: %d containers, port %d, command %q", what, kind, n, served, memcached.Command)
			}
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
		s.Metrics = &cachev1alpha1.MetricsSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{
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
	c.Spec.Metrics.ServiceMonitor = nil
	if ServiceMonitor(c) != nil {
		t.Error("there is one that the spec does not ask for")
	}
}
