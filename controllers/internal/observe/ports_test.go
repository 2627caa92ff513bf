package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/trim"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/wait"
)

// memberAt is a member's pod that was created for this port, as the cache has it.
func memberAt(t *testing.T, ordinal, port int32) corev1.Pod {
	t.Helper()
	c := testCluster()
	c.Spec.ContainerPort = port
	command := build.StatefulSet(c, build.Options{}, 3).Spec.Template.Spec.Containers[0].Command
	pod, err := trim.Pod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: build.PodName(c.Name, ordinal)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: build.ContainerMemcached, Command: command}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *pod.(*corev1.Pod)
}

func TestAJobIsReplacedWhenAMemberIsReplacedForAnotherPort(t *testing.T) {
	c := testCluster()
	c.Spec.ContainerPort = 11300
	o := &State{Cluster: c, Objects: Objects{
		StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}},
		Pods:        []corev1.Pod{memberAt(t, 0, 11211), memberAt(t, 1, 11300)},
	}}
	ports := o.Ports(c)
	if got := []int32{ports.Of(c, 0).Memcached, ports.Of(c, 1).Memcached}; got[0] != 11211 || got[1] != 11300 {
		t.Fatalf("members listen at %v", got)
	}
	job := build.DrainJob(c, build.Options{}, ports, "data-cache-2", "uid", 2, false)
	o.PortsMark = o.Ports(c).Mark(c)
	if o.planJob(job).Replace != "" {
		t.Error("its members listen where they did")
	}
	o.Pods[0] = memberAt(t, 0, 11300)
	o.PortsMark = o.Ports(c).Mark(c)
	if o.planJob(job).Replace == "" {
		t.Error("member 0 was replaced")
	}
}

// Members and routers are replaced one by one. Until its turn a pod answers at the port that it was created
// with.
func TestAPodIsAskedAtThePortThatItWasCreatedWith(t *testing.T) {
	of := func(port int32) *cachev1alpha1.Memcached {
		c := testCluster()
		c.Spec.ContainerPort, c.Spec.TLS, c.Spec.Router = port, &cachev1alpha1.TLSSpec{SecretName: "tls"}, &cachev1alpha1.RouterSpec{}
		return c
	}
	pod := func(name string, template *coreac.PodTemplateSpecApplyConfiguration) corev1.Pod {
		container := template.Spec.Containers[0]
		object, err := trim.Pod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "shipper"}, {Name: *container.Name, Command: container.Command}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return *object.(*corev1.Pod)
	}
	before, after := of(11300), of(11212)
	o := &State{Cluster: after}
	o.Pods = []corev1.Pod{
		pod("cache-0", build.StatefulSet(before, build.Options{}, 2).Spec.Template), pod("cache-1", build.StatefulSet(after, build.Options{}, 2).Spec.Template),
	}
	o.Routers.Pods = []corev1.Pod{pod("router-0", build.Routers(before, build.Options{}).Spec.Template), pod("router-1", build.Routers(after, build.Options{}).Spec.Template)}
	o.Routers.Told = &contract.RingTable{Number: 7}

	certificates, rings := &asked{}, &asked{}
	reader := &Reader{
		Clock: clock.RealClock{},
		Certificates: ask.NewCertificates(func(_ context.Context, address string) (contract.Certificate, error) {
			certificates.add(address)
			return contract.Certificate{NotAfter: 1}, nil
		}, func(types.NamespacedName) {}),
		Rings: ask.NewRouters(func(_ context.Context, address string, _ *ask.SignedTable) (contract.RingAcknowledged, error) {
			rings.add(address)
			return contract.RingAcknowledged{Number: 6}, nil
		}, func(types.NamespacedName) {}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = reader.Certificates.Start(ctx) })
	running.Go(func() { _ = reader.Rings.Start(ctx) })
	defer running.Wait()
	defer cancel()
	key := client.ObjectKeyFromObject(after)
	reader.observeCertificates(key, o)
	reader.observeRings(key, o)
	for what, test := range map[string]struct {
		asked *asked
		want  []string
	}{
		"certificates": {certificates, []string{"10.0.0.1:11212", "10.0.0.1:11213", "10.0.0.1:11214", "10.0.0.1:11302"}},
		"tables":       {rings, []string{"10.0.0.1:11212", "10.0.0.1:11213"}},
	} {
		wait.For(t, what+" are asked for", func() error {
			if got := test.asked.all(); !slices.Equal(got, test.want) {
				return fmt.Errorf("at %v, want %v", got, test.want)
			}
			return nil
		})
	}
}

// asked has the addresses that were asked.
type asked struct {
	mu        sync.Mutex
	addresses map[string]bool
}

func (a *asked) add(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.addresses == nil {
		a.addresses = map[string]bool{}
	}
	a.addresses[address] = true
}

func (a *asked) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.addresses))
}
