package e2e

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/forward"
)

// An application with one address, which knows what it has stored, goes on while the cluster
// becomes 3, 2 and 3 members.
func TestAScalingThroughRoutersIsNotSeen(t *testing.T) {
	t.Parallel()
	spec := persistent(3)
	spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	spec.Routing.Patience = &metav1.Duration{Duration: 30 * time.Second}
	f := setup(t, spec)
	address := f.routers(2)
	objects := f.objects()
	all := f.appAt([]string{"router:11211"}, address)
	f.must(all.Fill(f.ctx, objects))
	stop := app.StartSteady(f.dialer, address)
	ended := false
	defer func() {
		if !ended {
			stop()
		}
	}()
	for _, size := range []int32{2, 3} {
		f.scale(size)
		f.settled(size)
		report, err := all.Check(f.ctx, objects)
		f.must(err)
		if report.Missing > 0 {
			t.Errorf("%d objects are missing of %d: %q", report.Missing, report.Objects, report.Examples)
		}
	}
	saw := stop()
	ended = true
	t.Logf("%d requests, the slowest took %v", saw.Requests, saw.Slowest)
	if saw.Wrong() > 0 || saw.Requests < 1000 {
		t.Errorf("the application has noticed: %d misses, %d old values, %d undone deletes, %d errors:\n%q", saw.Misses, saw.Old, saw.Undone, saw.Errors, saw.Examples)
	}
	if f.claim(2) == nil || f.memcached().Status.ReadySize != 3 {
		t.Error("there are no three members")
	}
}

// With TLS and certificates on both sides, logins, and a NetworkPolicy in force, as the sample has
// them, a scaling is as little seen.
func TestAScalingThroughSecuredRoutersIsNotSeen(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	sample := f.sample("../../config/samples/cache_v1alpha1_memcached_secured.yaml")
	sample.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	sample.Spec.Routing.Patience = &metav1.Duration{Duration: 30 * time.Second}
	sample.Spec.NetworkPolicy.Clients = append(sample.Spec.NetworkPolicy.Clients,
		networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.88.0.1/32"}}) // where this test runs
	s := newSecrets(f, &sample.Spec)
	s.also = []string{f.name + "-router." + f.namespace + ".svc"}
	s.write("drainer:" + password + "\n")
	f.create(sample.Spec)
	f.routers(2)
	f.enforcePolicies()
	var pods corev1.PodList
	f.must(kube.List(f.ctx, &pods, client.InNamespace(f.namespace), client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter}))
	stop := app.StartSteady(f.dialer, fmt.Sprintf("%s:%d", pods.Items[0].Status.PodIP, f.memcached().Spec.ContainerPort))
	ended := false
	defer func() {
		if !ended {
			stop()
		}
	}()
	for _, size := range []int32{2, 3} {
		f.scale(size)
		f.inState(contract.RingPrepare)
		f.settled(size)
	}
	saw := stop()
	ended = true
	t.Logf("%d requests, the slowest took %v", saw.Requests, saw.Slowest)
	if saw.Wrong() > 0 || saw.Requests < 1000 {
		t.Errorf("the application has noticed: %d misses, %d old values, %d undone deletes, %d errors:\n%q", saw.Misses, saw.Old, saw.Undone, saw.Errors, saw.Examples)
	}
}

// Routers are replaced while the ring changes, and killed: the application finds what it has stored.
// Of a router that is gone it learns by an error, as of any server.
func TestRoutersAreReplacedAndKilledInAScaling(t *testing.T) {
	t.Parallel()
	spec := persistent(3)
	spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	spec.Routing.Patience = &metav1.Duration{Duration: 30 * time.Second}
	f := setup(t, spec)
	f.routers(2)
	var service corev1.Service
	f.must(kube.Get(f.ctx, f.key(f.name+"-router"), &service))
	address := fmt.Sprintf("%s:%d", service.Spec.ClusterIP, f.memcached().Spec.ContainerPort)
	stop := app.StartSteady(f.dialer, address)
	ended := false
	defer func() {
		if !ended {
			stop()
		}
	}()
	f.scale(2)
	f.inState(contract.RingPrepare)
	f.kubectl("rollout", "restart", "deployment", f.name+"-router")
	f.settled(2)
	f.kubectl("rollout", "status", "deployment", f.name+"-router", "--timeout=120s")
	f.scale(3)
	for _, state := range []string{contract.RingPrepare, contract.RingMove} {
		f.inState(state)
		f.killRouter()
	}
	f.settled(3)
	saw := stop()
	ended = true
	t.Logf("%d requests, %d errors, the slowest took %v", saw.Requests, saw.Errors, saw.Slowest)
	if saw.Misses+saw.Old+saw.Undone > 0 || saw.Requests < 1000 || saw.Errors > saw.Requests/10 {
		t.Errorf("the application has noticed: %d misses, %d old values, %d undone deletes, %d errors:\n%q", saw.Misses, saw.Old, saw.Undone, saw.Errors, saw.Examples)
	}
}

// inState waits until routers are told of that state of a ring change, or of a later one.
func (f *fixture) inState(state string) {
	f.Helper()
	order := []string{contract.RingPrepare, contract.RingSettle, contract.RingMove, contract.RingFinish}
	f.eventually("the ring is in state "+state, func() bool {
		var config corev1.ConfigMap
		if kube.Get(f.ctx, f.key(f.name+"-router"), &config) != nil {
			return false
		}
		table, err := contract.ParseRingTable([]byte(config.Data["table.json"]))
		return err == nil && slices.Index(order, table.State) >= slices.Index(order, state)
	})
}

// killRouter kills the process of one of them.
func (f *fixture) killRouter() {
	f.Helper()
	for _, pod := range f.pods() {
		if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentRouter && pod.DeletionTimestamp == nil && ready(&pod) {
			f.signal(syscall.SIGKILL, f.processesOf(&pod, "drainer")...)
			return
		}
	}
	f.Error("there is no router to be killed")
}

// routers waits until so many are ready, and returns an address at which they are reached in turn.
func (f *fixture) routers(n int32) string {
	f.Helper()
	name := f.name + "-router"
	f.eventually(fmt.Sprintf("%d routers are ready", n), func() bool {
		var d appsv1.Deployment
		return kube.Get(f.ctx, f.key(name), &d) == nil && d.Status.ReadyReplicas == n && d.Status.Replicas == n
	})
	var pods corev1.PodList
	f.must(kube.List(f.ctx, &pods, client.InNamespace(f.namespace), client.MatchingLabels{
		cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter, "app.kubernetes.io/instance": f.name}))
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	address, err := forward.Pods(f.ctx, config, f.namespace, names, int(f.memcached().Spec.ContainerPort))
	f.must(err)
	return address
}
