package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// The autoscalers are the samples', and faster. Their metrics come from the metrics API, which this test
// serves, for the pods that their targets' selectors select.
func TestAutoscalers(t *testing.T) {
	tier.Second(t, "TestAutoscalerScalesThroughDrains")
	t.Parallel()
	m := serveMetrics(inNamespace(t))
	t.Run("a flapping one drains members, and loses nothing", func(t *testing.T) {
		t.Parallel()
		aFlappingAutoscalerDrainsAndLosesNothing(t, m)
	})
	t.Run("routers come and go, and no application notices", func(t *testing.T) {
		t.Parallel()
		anAutoscalerOfRoutersIsNotNoticed(t, m)
	})
}

// TestJourneyOfAnAutoscaledCluster uses the samples: one autoscaler adds a member and removes it, another one
// adds a router and removes it, and no application notices.
func TestJourneyOfAnAutoscaledCluster(t *testing.T) {
	tier.Second(t, "TestAutoscalerScalesThroughDrains")
	t.Parallel()
	m := serveMetrics(inNamespace(t))
	f := inNamespace(t)
	f.name = "routed-autoscaled"
	load := m.loadOf(f.namespace)
	load.Store(little)
	f.kubectl("apply", "-f", samples+"cache_v1alpha1_memcached_routed_autoscaled.yaml")
	members := f.sample(samples + "cache_v1alpha1_memcached_autoscaled.yaml")
	mc := f.memcached()
	before := mc.DeepCopy()
	mc.Spec.Resources = members.Spec.Resources
	mc.Spec.Routing.Patience = &metav1.Duration{Duration: wait.Long}
	f.must(kube.Patch(f.ctx, mc, client.MergeFrom(before)))
	f.autoscale(samples+"cache_v1alpha1_memcached_autoscaled.yaml", members.Name)
	f.hurry(f.name)
	f.hurry(f.name + "-router")
	f.settled(2)
	f.routersReady(2) // the autoscaler's minimum; the Deployment began with one
	objects := f.some()
	all := f.appAt([]string{"router:11211"}, f.routerService())
	f.must(all.Fill(f.ctx, objects))
	stop := f.underLoad(app.StartRedialing, f.routerService())
	for _, step := range []struct {
		load int64
		size int32
	}{{much, 3}, {little, 2}} {
		load.Store(step.load)
		f.wantsSize(step.size)
		f.routersReady(step.size)
		f.settled(step.size)
	}
	f.unnoticed(stop())
	report, err := all.Check(f.ctx, objects)
	f.must(err)
	if report.Missing > 0 {
		t.Errorf("%d objects are missing of %d: %q", report.Missing, report.Objects, report.Examples)
	}
	if mc := f.memcached(); mc.Spec.Router.Replicas != nil {
		t.Errorf("the spec is %+v", mc.Spec.Router)
	}
}

// autoscale makes a sample's autoscaler scale the fixture's cluster.
func (f *fixture) autoscale(file, name string) {
	f.Helper()
	text, err := os.ReadFile(file)
	f.must(err)
	_, autoscaler, is := strings.Cut(string(text), "\n---\n")
	if !is {
		f.Fatalf("%s has no autoscaler", file)
	}
	ours := filepath.Join(f.TempDir(), "autoscaler.yaml")
	f.must(os.WriteFile(ours, []byte(strings.ReplaceAll(autoscaler, "name: "+name, "name: "+f.name)), 0o644))
	f.kubectl("apply", "-f", ours)
}

func aFlappingAutoscalerDrainsAndLosesNothing(t *testing.T, m *metricsServer) {
	f := inNamespace(t)
	f.name = "autoscaled"
	load := m.loadOf(f.namespace)
	f.kubectl("apply", "-f", "../../config/samples/cache_v1alpha1_memcached_autoscaled.yaml")
	// Members leave at once, so that there is something to drain, and the load is that of the wanted number of
	// members.
	f.patch(f.memcached(), `{"spec":{"routing":{"patience":"0s"},"drain":{"rateLimit":{"itemsPerSecond":1500}}}}`)
	f.hurry(f.name)
	f.settled(2)
	objects := f.objects()
	f.fill(2, objects)

	for range 2 {
		load.Store(much)
		f.wantsSize(3)
		load.Store(little)
		f.wantsSize(2) // also if a drain runs now
	}
	f.settled(2)
	f.expectAll(2, objects)
	for _, d := range f.memcached().Status.LastDrains {
		// The autoscaler may remove the member before its volume is bound.
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

// An application with one address sees no error, while an autoscaler adds a router and removes it.
func anAutoscalerOfRoutersIsNotNoticed(t *testing.T, m *metricsServer) {
	f := inNamespace(t)
	f.name = "routed-autoscaled"
	load := m.loadOf(f.namespace)
	load.Store(little)
	f.kubectl("apply", "-f", "../../config/samples/cache_v1alpha1_memcached_routed_autoscaled.yaml")
	f.hurry(f.name + "-router")
	f.settled(2)
	f.routersReady(2) // the autoscaler's minimum; the Deployment began with one
	stop := f.underLoad(app.StartRedialing, f.routerService())
	for range 2 {
		load.Store(much)
		f.routersReady(3)
		load.Store(little)
		f.routersReady(2)
	}
	f.unnoticed(stop())
	if mc := f.memcached(); mc.Spec.Router.Replicas != nil || *mc.Spec.Size != 2 {
		t.Errorf("the spec is %+v, size %d", mc.Spec.Router, *mc.Spec.Size)
	}
}

// The samples' targets are 60 % of 100m of CPU: two pods take 120m of them, three 180m.
const little, much = 100, 170

// hurry makes an autoscaler scale down at once.
func (f *fixture) hurry(autoscaler string) {
	f.Helper()
	f.patch(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: autoscaler}},
		`{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":100,"periodSeconds":1}]}}}}`)
}

// wantsSize waits until the autoscaler has set the size.
func (f *fixture) wantsSize(size int32) {
	f.Helper()
	f.eventually(fmt.Sprintf("the autoscaler wants %d members", size), func() bool { return *f.memcached().Spec.Size == size })
}

// metricsServer serves the API group of the pods' metrics, as metrics-server does.
type metricsServer struct {
	*fixture
	loads sync.Map // *atomic.Int64 by namespace
}

// loadOf returns a namespace's load, in thousandths of a CPU: that of all pods of one request together.
func (m *metricsServer) loadOf(namespace string) *atomic.Int64 {
	load, _ := m.loads.LoadOrStore(namespace, &atomic.Int64{})
	return load.(*atomic.Int64)
}

// oneMetricsAPI is held by the test that serves it: a cluster has one.
var oneMetricsAPI sync.Mutex

// serveMetrics serves pods' metrics until the test ends. Its Service is in the fixture's namespace.
func serveMetrics(f *fixture) *metricsServer {
	f.Helper()
	oneMetricsAPI.Lock()
	f.Cleanup(oneMetricsAPI.Unlock)
	m := &metricsServer{fixture: f}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, status := m.metrics(r.URL)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	api, err := url.Parse(config.Host)
	f.must(err)
	// The cluster reaches this machine at the API server's address.
	_ = server.Listener.Close()
	server.Listener, err = net.Listen("tcp", net.JoinHostPort(api.Hostname(), "0"))
	f.must(err)
	server.StartTLS()
	f.Cleanup(server.Close)
	f.publish(server.Listener.Addr().(*net.TCPAddr))
	return m
}

// publish registers the server as the metrics API.
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
	api := metricsAPI(f.namespace)
	f.must(kube.Create(f.ctx, api))
	f.Cleanup(func() { f.remove(api) })
}

// metricsAPI is the registration of the Service in the namespace as the metrics API.
func metricsAPI(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": namespace, "name": "metrics"},
		},
	}}
}

// metrics answers a request for the API group's resources, or for pods' metrics.
func (m *metricsServer) metrics(u *url.URL) (answer any, status int) {
	const version = "metrics.k8s.io/v1beta1"
	if u.Path == "/apis/"+version {
		return map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []any{
			map[string]any{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": []string{"get", "list"}},
		}}, http.StatusOK
	}
	namespace, is := strings.CutSuffix(strings.TrimPrefix(u.Path, "/apis/"+version+"/namespaces/"), "/pods")
	if !is {
		return map[string]any{}, http.StatusNotFound
	}
	selector, err := labels.Parse(u.Query().Get("labelSelector"))
	if err != nil {
		return err.Error(), http.StatusBadRequest
	}
	var pods corev1.PodList
	err = kube.List(m.ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil || len(pods.Items) == 0 {
		return fmt.Sprint(err), http.StatusServiceUnavailable
	}
	load := m.loadOf(namespace).Load() / int64(len(pods.Items))
	items := []any{}
	for _, pod := range pods.Items {
		items = append(items, map[string]any{
			"metadata":  map[string]any{"name": pod.Name, "namespace": pod.Namespace},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{
				"name":  pod.Spec.Containers[0].Name,
				"usage": map[string]any{"cpu": fmt.Sprintf("%dm", load), "memory": "64Mi"},
			}},
		})
	}
	return map[string]any{"kind": "PodMetricsList", "apiVersion": version, "metadata": map[string]any{}, "items": items}, http.StatusOK
}
