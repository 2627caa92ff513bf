package apply

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// oneMonitor is an API server with at most one object. An apply replaces it.
type oneMonitor struct {
	client.Client
	live    *unstructured.Unstructured
	applied int
}

func (s *oneMonitor) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if s.live == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.live.DeepCopyInto(object.(*unstructured.Unstructured))
	return nil
}

func (s *oneMonitor) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	s.applied++
	b, err := json.Marshal(o)
	s.live = &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(b, &s.live.Object)
	}
	return err
}

// endpoint is the only one of the live ServiceMonitor.
func (s *oneMonitor) endpoint(t *testing.T) map[string]any {
	t.Helper()
	endpoints, _, err := unstructured.NestedSlice(s.live.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("%v, %v", s.live.Object, err)
	}
	return endpoints[0].(map[string]any)
}

func TestAFieldThatLeavesTheSpecLeavesTheServiceMonitor(t *testing.T) {
	c := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Metrics = &cachev1alpha1.MetricsSpec{ServiceMonitor: &cachev1alpha1.ServiceMonitorSpec{
			Labels: map[string]string{"release": "prometheus"}, Interval: &metav1.Duration{Duration: time.Minute},
		}}
	}).Obj()
	c.UID = "memcached"
	server, monitors, now := &oneMonitor{}, &Monitors{}, time.Unix(5000, 0)
	apply := func() {
		t.Helper()
		if _, err := monitors.apply(t.Context(), access{Client: server, Live: server}, c, now); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	if is := server.endpoint(t); is["interval"] != "60s" || server.live.GetLabels()["release"] != "prometheus" {
		t.Errorf("endpoint %v, labels %v", is, server.live.GetLabels())
	}
	c.Generation++
	c.Spec.Metrics.ServiceMonitor = &cachev1alpha1.ServiceMonitorSpec{}
	apply()
	if is := server.endpoint(t); is["interval"] != nil || server.live.GetLabels()["release"] != "" {
		t.Errorf("endpoint %v, labels %v", is, server.live.GetLabels())
	}
	for range 3 {
		now = now.Add(monitorInterval)
		apply()
	}
	if server.applied != 2 {
		t.Errorf("%d writes, want 2: what is as wanted is not written", server.applied)
	}
}
