package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// prometheusOperator is the module that has the definition of ServiceMonitor.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

var serviceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// serviceMonitorDefinition reads the Prometheus operator's CRD.
func serviceMonitorDefinition(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", prometheusOperator)
	cmd.Dir = t.TempDir() // outside of this module
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", prometheusOperator, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_servicemonitors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &definition.Object); err != nil {
		t.Fatal(err)
	}
	return definition
}

// serviceMonitor returns the cluster's, or nil.
func (w *world) serviceMonitor() *unstructured.Unstructured {
	w.Helper()
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(serviceMonitorKind)
	return found(w, m, admin.Get(w.Context(), w.key(name), m))
}

// The test adds a kind and removes it again, so it is not parallel.
func TestServiceMonitorIsMadeAndKeptWhereTheClusterHasTheKind(t *testing.T) {
	w := newSerialNamespace(t)
	w.startOperator()
	w.create(apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Metrics = &cachev1alpha1.MetricsSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{
			Labels: map[string]string{"release": "prometheus"}, Interval: &metav1.Duration{Duration: 30 * time.Second},
		}}
	}).Obj())
	w.settled(3)
	w.condition(cachev1alpha1.ConditionMonitored, "False", cachev1alpha1.ReasonServiceMonitorUnknown)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonServiceMonitorUnknown)

	definition := serviceMonitorDefinition(t)
	if err := admin.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), definition); err != nil {
			t.Error(err)
		}
	})
	w.eventually("the API server knows ServiceMonitors", func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(serviceMonitorKind)
		return admin.List(t.Context(), list, client.InNamespace(w.namespace))
	})
	w.restartOperator() // otherwise the operator looks for the kind every five minutes
	w.noCondition(cachev1alpha1.ConditionMonitored)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	equal(w, "status.serviceMonitor", w.memcached().Status.ServiceMonitor, name)
	m := w.serviceMonitor()
	equal(w, "its labels", m.GetLabels()["release"], "prometheus")
	w.selectsTheService(m)
	w.quiet()

	w.change(m, `{"spec":{"endpoints":[{"port":"another"}]}}`)
	w.restartOperator()
	w.eventually("it is as wanted again", func() error {
		endpoints, _, err := unstructured.NestedSlice(w.serviceMonitor().Object, "spec", "endpoints")
		if endpoint, _ := endpoints[0].(map[string]any); err != nil || endpoint["port"] != "metrics" || endpoint["interval"] != "30s" {
			return errors.Join(err, fmt.Errorf("%v", endpoints))
		}
		return nil
	})
	w.change(w.memcached(), `{"spec":{"metrics":{"serviceMonitor":null}}}`)
	w.eventually("a status without it", func() error {
		if s := w.memcached().Status.ServiceMonitor; s != "" {
			return errors.New(s)
		}
		return nil
	})
	w.noCondition(cachev1alpha1.ConditionMonitored)
	if w.serviceMonitor() != nil {
		t.Error("it is there, though the spec doesn't want it any more")
	}
	w.quiet()
}

// selectsTheService fails if the monitor doesn't select the Service: Prometheus goes by the labels of Services
// and the names of their ports.
func (w *world) selectsTheService(m *unstructured.Unstructured) {
	w.Helper()
	service := w.service()
	labels, _, err := unstructured.NestedStringMap(m.Object, "spec", "selector", "matchLabels")
	if err != nil || len(labels) == 0 {
		w.Fatalf("selector %v: %v", labels, err)
	}
	for key, value := range labels {
		equal(w, "the Service's label "+key, service.Labels[key], value)
	}
	ports := map[string]int32{}
	for _, p := range service.Spec.Ports {
		ports[p.Name] = p.Port
	}
	equal(w, "the Service's ports", ports, map[string]int32{"memcached": 11211, "metrics": 9150})
}
