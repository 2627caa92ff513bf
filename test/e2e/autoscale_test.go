package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// The sample's autoscaler, in more of a hurry. It goes by what the metrics API
// says of the pods that status.selector selects, and that is this test's to say.
func TestAFlappingAutoscalerDrainsAndLosesNothing(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	f.name = "autoscaled"
	load := f.serveMetrics()
	f.kubectl("apply", "-f", "../../config/samples/cache_v1alpha1_memcached_autoscaled.yaml")
	// Members leave at once, so that there is something to drain, and the load is that of
	// as many members as are wanted.
	f.patch(f.memcached(), `{"spec":{"routing":{"patience":"0s"},"drain":{"rateLimit":{"itemsPerSecond":1500}}}}`)
	f.patch(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name}},
		`{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":100,"periodSeconds":1}]}}}}`)
	f.settled(2)
	objects := f.objects()
	f.fill(2, objects)

	// In all 100m of CPU for each of two members are 60 %: 120m.
	const little, much = 100, 170
	for range 2 {
		load.Store(much)
		f.wantsSize(3)
		load.Store(little)
		f.wantsSize(2) // whatever drains by now
	}
	f.settled(2)
	f.expectAll(2, objects)
	for _, d := range f.memcached().Status.LastDrains {
		// The autoscaler may be faster than the member's volume.
		if d.Result != "Drained" && d.Result != "NeverBound" {
			t.Errorf("claim %s went without a drain: %+v", d.Claim, d)
		}
	}

	load.Store(much)
	f.wantsSize(3)
	f.settled(3)
	more := small(6000)
	f.fill(3, more)
	load.Store(little)
	f.wantsSize(2)
	f.settled(2)
	f.expectAll(2, slices.Concat(objects, more))
	if last := f.memcached().Status.LastDrains; len(last) == 0 || last[0].Result != "Drained" || last[0].Added == 0 {
		t.Errorf("the autoscaler's scale-down drained nothing: %+v", last)
	}
}

// wantsSize waits until the autoscaler has set the size.
func (f *fixture) wantsSize(size int32) {
	f.Helper()
	f.eventually(fmt.Sprintf("the autoscaler wants %d members", size), func() bool { return *f.memcached().Spec.Size == size })
}

// serveMetrics serves the API group of the pods' metrics, as metrics-server does,
// for this namespace: the load, in thousandths of a CPU, is that of all members
// together.
func (f *fixture) serveMetrics() *atomic.Int64 {
	f.Helper()
	load := &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, status := f.metrics(r.URL, load.Load())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	api, err := url.Parse(config.Host)
	f.must(err)
	// The cluster reaches this machine where it reaches the API server.
	_ = server.Listener.Close()
	server.Listener, err = net.Listen("tcp", net.JoinHostPort(api.Hostname(), "0"))
	f.must(err)
	server.StartTLS()
	f.Cleanup(server.Close)
	f.publish(server.Listener.Addr().(*net.TCPAddr))
	return load
}

// publish the server as the API of metrics.
func (f *fixture) publish(at *net.TCPAddr) {
	f.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "metrics"}}
	service.Spec.Ports = []corev1.ServicePort{{Port: 443}}
	f.must(kube.Create(f.ctx, service))
	f.must(kube.Create(f.ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "metrics", Labels: map[string]string{
			discoveryv1.LabelServiceName: service.Name,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(at.Port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}))
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": f.namespace, "name": service.Name},
		},
	}}
	f.must(kube.Create(f.ctx, api))
	f.Cleanup(func() { f.remove(api) })
}

// metrics answers a request for the API group's resources, or for pods' metrics.
func (f *fixture) metrics(u *url.URL, load int64) (answer any, status int) {
	const version = "metrics.k8s.io/v1beta1"
	switch u.Path {
	case "/apis/" + version:
		return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []any{
			map[string]any{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": []string{"get", "list"}},
		}}, http.StatusOK
	case "/apis/" + version + "/namespaces/" + f.namespace + "/pods":
	default:
		return map[string]any{}, http.StatusNotFound
	}
	selector, err := labels.Parse(u.Query().Get("labelSelector"))
	if err != nil {
		return err.Error(), http.StatusBadRequest
	}
	var pods corev1.PodList
	err = kube.List(f.ctx, &pods, client.InNamespace(f.namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil || len(pods.Items) == 0 {
		return fmt.Sprint(err), http.StatusServiceUnavailable
	}
	items := []any{}
	for _, pod := range pods.Items {
		items = append(items, map[string]any{
			"metadata":  map[string]any{"name": pod.Name, "namespace": pod.Namespace},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{
				"name":  pod.Labels[cachev1alpha1.LabelName],
				"usage": map[string]any{"cpu": fmt.Sprintf("%dm", load/int64(len(pods.Items))), "memory": "64Mi"},
			}},
		})
	}
	return map[string]any{"kind": "PodMetricsList", "apiVersion": version, "metadata": map[string]any{}, "items": items}, http.StatusOK
}
