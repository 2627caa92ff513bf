package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

// An application with one address, which knows its own values, goes on while the cluster is scaled from 3
// members to 2, and to 3 again.
func TestAScalingThroughRoutersIsNotSeen(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	f := setup(t, routed(3))
	address := f.routers(2)
	objects := f.objects()
	all := f.appAt([]string{"router:11211"}, address)
	f.must(all.Fill(f.ctx, objects))
	stop := f.underLoad(app.StartSteady, address)
	for _, size := range []int32{2, 3} {
		f.scale(size)
		f.settled(size)
		report, err := all.Check(f.ctx, objects)
		f.must(err)
		if report.Missing > 0 {
			t.Errorf("%d objects are missing of %d: %q", report.Missing, report.Objects, report.Examples)
		}
	}
	f.unnoticed(stop())
	if f.claim(2) == nil || f.memcached().Status.ReadySize != 3 {
		t.Error("there are no three members")
	}
}

// All members get another memory, one after the other, and an application that knows its own values, and asks
// both routers, notices nothing.
func TestAPlannedRestartThroughRoutersIsNotSeen(t *testing.T) {
	tier.Second(t, "TestMembersStepOutForARollOut")
	t.Parallel()
	plannedRestart(t, routed(3))
}

// No application notices a planned restart without volumes either, although each pod has the only copy of its
// items.
func TestAPlannedRestartWithoutVolumesIsNotSeen(t *testing.T) {
	tier.Second(t, "TestMembersStepOutForARollOut")
	t.Parallel()
	spec := routed(3)
	spec.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
	plannedRestart(t, spec)
}

func plannedRestart(t *testing.T, spec cachev1alpha1.MemcachedSpec) {
	t.Helper()
	spec.Rollout, spec.Routing.Client = cachev1alpha1.RolloutMoved, "libmemcached-ketama"
	f := setup(t, spec)
	f.routersReady(2)
	address, err := deployed.ForwardInTurn(f.ctx, func() []string { return f.routerAddresses() })
	f.must(err)
	objects := f.objects()
	all := f.appAt([]string{"router:11211"}, address)
	f.must(all.Fill(f.ctx, objects))
	stop := f.underLoad(app.StartSteady, address)
	before, began := f.podUIDs(), time.Now()
	mc := f.memcached()
	was := mc.DeepCopy()
	mc.Spec.Memory = ptr.To(resource.MustParse("208Mi"))
	f.must(kube.Patch(f.ctx, mc, client.MergeFrom(was)))
	said := map[string]bool{}
	f.eventually("all members have another memory", func() bool {
		if c := meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionProgressing); c != nil && !said[c.Message] {
			said[c.Message] = true
			t.Logf("%5.1f s: %s", time.Since(began).Seconds(), c.Message)
		}
		replaced := 0
		for _, pod := range f.pods() {
			if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentMember && ready(&pod) && pod.DeletionTimestamp == nil && !before[pod.UID] {
				replaced++
			}
		}
		return replaced == 3
	})
	f.settled(3)
	t.Logf("three members are replaced after %.1f s", time.Since(began).Seconds())
	f.unnoticed(stop())
	report, err := all.Check(f.ctx, objects)
	f.must(err)
	if report.Missing > 0 {
		t.Errorf("%d objects are missing of %d: %q", report.Missing, report.Objects, report.Examples)
	}
}

// TestJourneyThroughRouters uses the routed sample. An application with one address, which knows its own
// values, doesn't notice a roll-out of the routers, at rest or while the ring changes, nor a member that
// joins, nor one that leaves. Its library dials anew when a router has closed an idle connection, and sends a
// request without an answer again. Such a request was not carried out, or the application would have noticed.
func TestJourneyThroughRouters(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	spec := roomForSome(f.sample(samples + "cache_v1alpha1_memcached_routed.yaml").Spec)
	spec.Size, spec.Routing.Patience = ptr.To[int32](2), &metav1.Duration{Duration: wait.Long}
	f.create(spec)
	f.routersReady(2)
	objects := f.some()
	all := f.appAt([]string{"router:11211"}, f.routerService())
	f.must(all.Fill(f.ctx, objects))
	found := func(when string) {
		t.Helper()
		report, err := all.Check(f.ctx, objects)
		f.must(err)
		if report.Missing > 0 {
			t.Errorf("%s: %d objects are missing of %d: %q", when, report.Missing, report.Objects, report.Examples)
		}
	}
	stop := f.underLoad(app.StartRedialing, f.routerService())
	f.rollOutRouters()
	f.changeBegins(3)
	f.rollOutRouters()
	f.settled(3)
	found("when a member has joined")
	f.scale(2)
	f.settled(2)
	found("when one has left")
	saw := stop()
	f.unnoticed(saw)
	if saw.Resent == 0 {
		t.Error("no router has closed a connection that the application wanted to use: nothing was tested")
	}
}

// An application doesn't notice a scaling either with TLS and certificates on both sides, logins, and an
// enforced NetworkPolicy, as in the sample.
func TestAScalingThroughSecuredRoutersIsNotSeen(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	scalingThroughSecuredRouters(t, func(*cachev1alpha1.MemcachedSpec) {})
}

// No application notices it without volumes either: movers log in to the leaving member, and stream its items
// over TLS.
func TestAScalingOfSecuredMembersWithoutVolumesIsNotSeen(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	scalingThroughSecuredRouters(t, func(s *cachev1alpha1.MemcachedSpec) {
		s.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
	})
}

func scalingThroughSecuredRouters(t *testing.T, change func(*cachev1alpha1.MemcachedSpec)) {
	t.Helper()
	f := inNamespace(t)
	sample := f.sample("../../config/samples/cache_v1alpha1_memcached_secured.yaml")
	change(&sample.Spec)
	sample.Spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	sample.Spec.Routing.Patience = &metav1.Duration{Duration: wait.Long}
	sample.Spec.NetworkPolicy.Clients = append(sample.Spec.NetworkPolicy.Clients,
		networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.88.0.1/32"}}) // this test's address
	s := newSecrets(f, &sample.Spec)
	s.also = []string{f.name + "-router." + f.namespace + ".svc"}
	s.write("drainer:" + password + "\n")
	f.create(sample.Spec)
	f.routers(2)
	f.enforcePolicies()
	var pods corev1.PodList
	f.must(kube.List(f.ctx, &pods, client.InNamespace(f.namespace), client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter}))
	stop := f.underLoad(app.StartSteady, fmt.Sprintf("%s:%d", pods.Items[0].Status.PodIP, f.memcached().Spec.ContainerPort))
	for _, size := range []int32{2, 3} {
		f.changeBegins(size)
		f.settled(size)
	}
	f.unnoticed(stop())
}

// A roll-out of the routers breaks no request, at rest or while the ring changes. An application sees no error
// if its library dials anew when a router has closed an idle connection. A request that is sent again was not
// carried out, or the application would have noticed.
func TestARollOutOfRoutersBreaksNoRequest(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	f := setup(t, routed(3))
	f.routersReady(2)
	stop := f.underLoad(app.StartRedialing, f.routerService())
	f.rollOutRouters()
	f.changeBegins(2)
	f.rollOutRouters()
	f.settled(2)
	saw := stop()
	f.unnoticed(saw)
	if saw.Resent == 0 {
		t.Error("no router has closed a connection that the application wanted to use: nothing was tested")
	}
}

// A router is killed in each state of a ring change, and the application finds what it has stored. The
// application gets an error from a router that is gone, as from any server.
func TestARouterIsKilledInEachStateOfAScaling(t *testing.T) {
	tier.Second(t, "TestJourneyThroughRouters")
	t.Parallel()
	f := setup(t, routed(3))
	routers := f.routersReady(2)
	// Each router serves half of the connections. A Service might prefer one.
	address, err := deployed.ForwardInTurn(f.ctx, func() []string { return f.routerAddresses() })
	f.must(err)
	told := f.tablesTold()
	stop := f.underLoad(app.StartSteady, address)
	left := []contract.RingState{contract.RingPrepare, contract.RingSettle, contract.RingMove, contract.RingFinish}
	const brokenByAKill = 100
	var kills int64
	for n := 0; len(left) > 0; n++ { // a state is short: on a busy machine it may be over before the test sees it
		var before int64
		f.eventually("the ring is stable", func() bool {
			var state contract.RingState
			before, state = told.last()
			return before > 0 && state == contract.RingStable
		})
		size := int32(2 + n%2)
		f.scale(size)
		if f.killRouterIn(&routers[n%2], left[0], told, before) {
			left, kills = left[1:], kills+1
		}
		f.settled(size)
		f.routersReady(2)
	}
	saw := stop()
	t.Logf("%d requests, %d errors, the slowest took %v", saw.Requests, saw.Errors, saw.Slowest)
	// Each kill breaks the connections that the application has, and some that it makes then.
	if saw.Misses+saw.Old+saw.Undone > 0 || saw.Errors > kills*brokenByAKill {
		t.Errorf("the application has noticed: %d misses, %d old values, %d undone deletes, %d errors: %q", saw.Misses, saw.Old, saw.Undone, saw.Errors, saw.Examples)
	}
}

// routed is the spec of a cluster that only two routers ask.
func routed(size int32) cachev1alpha1.MemcachedSpec {
	spec := persistent(size)
	spec.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2), Exclusive: true}
	spec.Routing.Patience = &metav1.Duration{Duration: wait.Long} // movers may be slow, and members leave when no item is left
	return spec
}

// underLoad starts an application that asks the address. It ends by stop, or with the test.
func (f *fixture) underLoad(start func(memcache.Dialer, string) func() app.Steady, address string) (stop func() app.Steady) {
	stop = sync.OnceValue(start(f.dialer, address))
	f.Cleanup(func() { stop() })
	return stop
}

// unnoticed expects that each answer to an application was right.
func (f *fixture) unnoticed(saw app.Steady) {
	f.Helper()
	f.Logf("%d requests, %d of them sent again, the slowest took %v", saw.Requests, saw.Resent, saw.Slowest)
	if saw.Wrong() > 0 {
		f.Errorf("the application has noticed, in %d requests: %d misses, %d old values, %d undone deletes, %d errors: %q",
			saw.Requests, saw.Misses, saw.Old, saw.Undone, saw.Errors, saw.Examples)
	}
}

// routerService returns the routers' one address.
func (f *fixture) routerService() string {
	f.Helper()
	var service corev1.Service
	f.must(kube.Get(f.ctx, f.key(f.name+"-router"), &service))
	return fmt.Sprintf("%s:%d", service.Spec.ClusterIP, f.memcached().Spec.ContainerPort)
}

// rollOutRouters replaces all of them, and waits until the old ones are gone.
func (f *fixture) rollOutRouters() {
	f.Helper()
	old := map[string]bool{}
	for _, pod := range f.routerPods() {
		old[pod.Name] = true
	}
	f.kubectl("rollout", "restart", "deployment", f.name+"-router")
	f.eventually("the routers are other ones", func() bool {
		for _, pod := range f.routerPods() {
			if old[pod.Name] {
				return false
			}
		}
		return true
	})
	f.routersReady(int32(len(old)))
}

// routerPods returns the routers' pods by name, also those that are ending.
func (f *fixture) routerPods() []corev1.Pod {
	f.Helper()
	pods := slices.DeleteFunc(f.pods(), func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentRouter || p.Labels[cachev1alpha1.LabelInstance] != f.name
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// routerAddresses returns those to which a Service would send clients. Other goroutines may call it.
func (f *fixture) routerAddresses() (addresses []string) {
	var pods corev1.PodList
	_ = kube.List(f.ctx, &pods, client.InNamespace(f.namespace), client.MatchingLabels{
		cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter, cachev1alpha1.LabelInstance: f.name})
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil && ready(p) {
			addresses = append(addresses, p.Status.PodIP+":11211")
		}
	}
	return addresses
}

// tables are those that the operator has written, by the API server's events.
type tables struct {
	mu     sync.Mutex
	states map[int64]contract.RingState // by number
}

func (t *tables) state(number int64) contract.RingState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.states[number]
}

func (t *tables) last() (number int64, state contract.RingState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := range t.states {
		number = max(number, n)
	}
	return number, t.states[number]
}

// tablesTold follows the tables until the test ends.
func (f *fixture) tablesTold() *tables {
	f.Helper()
	events, err := kube.(client.WithWatch).Watch(f.ctx, &corev1.ConfigMapList{},
		client.InNamespace(f.namespace), client.MatchingFields{"metadata.name": f.name + "-router"})
	f.must(err)
	f.Cleanup(events.Stop)
	told := &tables{states: map[int64]contract.RingState{}}
	go func() {
		for event := range events.ResultChan() {
			config, is := event.Object.(*corev1.ConfigMap)
			if !is {
				continue
			}
			if table, err := contract.ParseRingTable([]byte(config.Data["table.json"])); err == nil {
				told.mu.Lock()
				told.states[table.Number] = table.State
				told.mu.Unlock()
			}
		}
	}()
	return told
}

// killRouterIn kills a router as soon as the router has read a table of that state, which comes after the table
// with that number. killRouterIn returns false if the state was over before it was seen.
func (f *fixture) killRouterIn(router *corev1.Pod, state contract.RingState, told *tables, after int64) bool {
	f.Helper()
	pids := f.processesOf(router, "drainer")
	url := fmt.Sprintf("http://%s:11212/ring", router.Status.PodIP)
	for ; time.Now().Before(wait.Deadline()); time.Sleep(10 * time.Millisecond) {
		is := f.routerIs(url)
		if is == nil || is.Number <= after {
			continue
		}
		switch now := told.state(is.Number); {
		case now == state:
			f.signal(syscall.SIGKILL, pids...)
			var config corev1.ConfigMap
			f.must(kube.Get(f.ctx, f.key(f.name+"-router"), &config))
			f.Logf("router %s was killed with table %d (%s), %d acknowledged; right after that, routers were told: %s",
				router.Name, is.Number, now, is.Acknowledged, config.Data["table.json"])
			return true
		case now > state:
			f.Logf("router %s is in state %s already, and was to be killed in state %s", router.Name, now, state)
			return false
		}
	}
	f.Fatalf("router %s is never in state %s", router.Name, state)
	return false
}

// routerIs asks a router for its table; nil if it doesn't answer.
func (f *fixture) routerIs(url string) *contract.RingAcknowledged {
	f.Helper()
	request, err := http.NewRequestWithContext(f.ctx, http.MethodGet, url, nil)
	f.must(err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	is := &contract.RingAcknowledged{}
	if json.NewDecoder(answer.Body).Decode(is) != nil {
		return nil
	}
	return is
}

// told returns the table that routers are told of; nil if it can't be read.
func (f *fixture) told() *contract.RingTable {
	f.Helper()
	var config corev1.ConfigMap
	if kube.Get(f.ctx, f.key(f.name+"-router"), &config) != nil {
		return nil
	}
	table, err := contract.ParseRingTable([]byte(config.Data["table.json"]))
	if err != nil {
		return nil
	}
	return table
}

// changeBegins changes the size, and waits until routers are told of the ring change. On a busy machine the change may be
// over before the test has seen it.
func (f *fixture) changeBegins(size int32) {
	f.Helper()
	var before *contract.RingTable
	f.eventually("the ring is stable", func() bool {
		before = f.told()
		return before != nil && before.State == contract.RingStable
	})
	f.scale(size)
	f.eventually("the ring changes", func() bool {
		now := f.told()
		return now != nil && now.Number > before.Number
	})
}

// routersReady waits until so many routers are ready, and no other exists. routersReady returns
// them by name.
func (f *fixture) routersReady(n int32) (pods []corev1.Pod) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d routers are ready", n), func() bool {
		var d appsv1.Deployment
		if kube.Get(f.ctx, f.key(f.name+"-router"), &d) != nil || d.Status.ReadyReplicas != n || d.Status.Replicas != n {
			return false
		}
		pods = f.routerPods()
		return len(pods) == int(n) && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !ready(&p) })
	})
	return pods
}

// routers waits until so many routers are ready. routers returns an address at which they are reached in
// turn.
func (f *fixture) routers(n int32) string {
	f.Helper()
	var names []string
	for _, pod := range f.routersReady(n) {
		names = append(names, pod.Name)
	}
	address, err := deployed.ForwardPods(f.ctx, config, f.namespace, names, int(f.memcached().Spec.ContainerPort))
	f.must(err)
	return address
}
