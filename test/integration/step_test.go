package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// stepping is a cluster of that many members, which step out of the ring when they are replaced.
func stepping(w *world, size int32, changes ...func(*cachev1alpha1.MemcachedSpec)) {
	w.Helper()
	m := steps(changes...)
	kubes.Play(w.namespace, player.Succeed(7))
	w.storageCluster(m, size)
	w.allRoutedTo(2, int(size))
}

func steps(changes ...func(*cachev1alpha1.MemcachedSpec)) *apitest.MemcachedBuilder {
	m := patient().With(routed).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Router.Exclusive, s.Rollout = true, cachev1alpha1.RolloutMoved
		s.Routing.Client = "pymemcache"
	})
	for _, change := range changes {
		m = m.With(change)
	}
	return m
}

// stepReader plays the supervisors: each starts empty when it is told to.
func (w *world) stepReader() controllers.StepReader {
	return func(_ context.Context, address string) (contract.Stepped, error) {
		host, _, err := net.SplitHostPort(address)
		pods := &corev1.PodList{}
		err = errors.Join(err, admin.List(w.Context(), pods, client.InNamespace(w.namespace), client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMember}))
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.PodIP == host && p.DeletionTimestamp == nil {
				told := p.Annotations[cachev1alpha1.AnnotationStepOut]
				return contract.Stepped{Told: told, Empty: contract.ParseStepOut(told)}, nil
			}
		}
		return contract.Stepped{}, errors.Join(err, fmt.Errorf("no member is at %s", address))
	}
}

// otherMemory replaces all members.
func (w *world) otherMemory() {
	w.Helper()
	w.change(w.memcached(), `{"spec":{"resources":{"requests":{"cpu":"70m"}}}}`)
}

// replaced returns nil when all members have the template of otherMemory, and no member is out.
func (w *world) replacedAll(size int32) error {
	pods := w.memberPods()
	for i := range pods {
		if cpu := pods[i].Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "70m" {
			return fmt.Errorf("%s has cpu %s", pods[i].Name, cpu)
		}
	}
	if len(pods) != int(size) {
		return fmt.Errorf("%d members", len(pods))
	}
	if p := w.partition(); p != 0 {
		return fmt.Errorf("the partition is %d", p)
	}
	_, err := w.routedTo(2, int(size))
	return err
}

func (w *world) memberPods() []corev1.Pod {
	return slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentMember || p.DeletionTimestamp != nil
	})
}

func (w *world) partition() int32 {
	w.Helper()
	s := &appsv1.StatefulSet{}
	if err := admin.Get(w.Context(), w.key(name), s); err != nil {
		w.Fatal(err)
	}
	if s.Spec.UpdateStrategy.RollingUpdate == nil {
		return 0
	}
	return ptr.Deref(s.Spec.UpdateStrategy.RollingUpdate.Partition, 0)
}

// out names the members that a table leaves out.
func out(t *contract.RingTable) string {
	if t.New.Out > 0 {
		return fmt.Sprintf("without %d", t.New.Out-1)
	}
	return "whole"
}

// steps records what routers are told of who is out, until stop, and fails if a member of their ring is replaced.
func (w *world) steps() (stop func() []string) {
	w.Helper()
	var seen []string
	stopWatch := w.followConfigMaps(func(config *corev1.ConfigMap) {
		if servers, is := config.Data["servers"]; is && len(strings.Fields(servers)) == 0 {
			seen = append(seen, "no client is told of a member")
		}
		if t, err := contract.ParseRingTable([]byte(config.Data["table.json"])); err == nil {
			if s := fmt.Sprintf("%s %s", t.State, out(t)); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
	})
	return func() []string {
		stopWatch()
		return seen
	}
}

// TestMembersStepOutForARollOut one at a time, highest ordinal first, each back in the ring before the next.
func TestMembersStepOutForARollOut(t *testing.T) {
	w := newWorld(t)
	stepping(w, 2)
	w.stepsOutOneByOne()
}

// TestMembersWithoutVolumesStepOutForARollOut, and no event says that items are lost. With rollout: Restart they are, and
// one event says so.
func TestMembersWithoutVolumesStepOutForARollOut(t *testing.T) {
	tier.Second(t, "TestMembersStepOutForARollOut")
	w := newWorld(t)
	kubes.Play(w.namespace, player.Succeed(7))
	w.inPods(steps(), 2)
	w.allRoutedTo(2, 2)
	w.stepsOutOneByOne()
	for _, e := range w.events() {
		if e.Reason == "ItemsLost" {
			t.Errorf("an event says that items are lost: %s", e.Note)
		}
	}

	before := w.memberPods()
	w.change(w.memcached(), `{"spec":{"rollout":"Restart"}}`)
	w.settled(2)
	equal(w, "pods after a change of rollout alone", w.memberPods()[0].UID, before[0].UID)
	w.change(w.memcached(), `{"spec":{"resources":{"requests":{"cpu":"80m"}}}}`)
	w.eventsOnce("ItemsLost")
	w.settled(2)
	w.eventsOnce("ItemsLost")
}

// stepsOutOneByOne changes the template of two members, and checks what routers and clients are told until both have it.
func (w *world) stepsOutOneByOne() {
	w.Helper()
	before := w.memcached().Status.Servers
	tables := w.steps()
	w.otherMemory()
	w.eventually("all members are replaced", func() error { return w.replacedAll(2) })
	w.settled(2)
	var want []string
	for _, member := range []int{1, 0} {
		for _, ring := range []string{fmt.Sprintf("without %d", member), "whole"} {
			for _, state := range []string{"prepare", "settle", "move", "finish", "stable"} {
				want = append(want, state+" "+ring)
			}
		}
	}
	equal(w, "what routers were told", tables(), append([]string{"stable whole"}, want...))
	equal(w, "the clients' list", w.memcached().Status.Servers, before)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	w.quiet()
}

// TestTheOperatorDiesInEachStateOfAStep and its successor takes the step further.
func TestTheOperatorDiesInEachStateOfAStep(t *testing.T) {
	tier.Second(t, "TestMembersStepOutForARollOut")
	w := newWorld(t)
	stepping(w, 2)
	died := map[string]bool{}
	w.otherMemory()
	w.eventually("all members are replaced", func() error {
		table, err := w.table()
		if err != nil {
			return err
		}
		if s := fmt.Sprintf("%s %s, partition %d", table.State, out(table), w.partition()); !died[s] {
			died[s] = true
			w.restartOperator()
		}
		return w.replacedAll(2)
	})
	w.settled(2)
	if len(died) < 10 {
		t.Errorf("it died only in %v", died)
	}
}

// TestASizeWaitsForAStep, visibly, and the step doesn't wait for the size.
func TestASizeWaitsForAStep(t *testing.T) {
	w := newWorld(t)
	stepping(w, 2)
	kubes.HoldDrainers(w.namespace, true)
	w.otherMemory()
	w.eventually("a member steps out", func() error {
		table, err := w.table()
		if err == nil && (table.State != contract.RingMove || out(table) != "without 1") {
			err = fmt.Errorf("the table is %s", asJSON(table))
		}
		return err
	})
	w.scale(3)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForMove)
	if err := w.replicas(2); err != nil {
		t.Error(err)
	}
	kubes.HoldDrainers(w.namespace, false)
	w.settled(3)
	w.eventually("all members are replaced", func() error { return w.replacedAll(3) })
}

// TestMembersAreRestartedWhereTheyAre if the client library would look for all keys elsewhere without one of them.
// Status says why.
func TestMembersAreRestartedWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	stepping(w, 3, func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "gomemcache" })
	tables := w.steps()
	kubes.Unready(w.namespace, true)
	w.otherMemory()
	w.eventually("status says why", func() error {
		c := meta.FindStatusCondition(w.memcached().Status.Conditions, cachev1alpha1.ConditionProgressing)
		if c == nil || !strings.Contains(c.Message, "member 2 of 3 is restarting with its items") || !strings.Contains(c.Message, "looks for other members' keys elsewhere") {
			return fmt.Errorf("it says %s", asJSON(c))
		}
		return nil
	})
	kubes.Unready(w.namespace, false)
	w.eventually("all members are replaced", func() error { return w.replacedAll(3) })
	equal(w, "what routers were told", tables(), []string{"stable whole"})
}

// TestUninstallInMidStepLetsAllMembersBeReplaced, because no operator would lower the partition any more.
func TestUninstallInMidStepLetsAllMembersBeReplaced(t *testing.T) {
	tier.Second(t, "TestMembersStepOutForARollOut")
	w := newWorld(t)
	u := newUninstallation(w)
	stepping(w, 2, func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Evictions = cachev1alpha1.EvictionsStepOut })
	equal(w, "how many may be evicted", w.budget().Spec.MaxUnavailable.String(), "0")
	kubes.HoldDrainers(w.namespace, true)
	w.otherMemory()
	w.eventually("members wait for their turn", func() error {
		if p := w.partition(); p != 2 {
			return fmt.Errorf("the partition is %d", p)
		}
		return nil
	})
	if err := controllers.Uninstall(t.Context(), u.options); err != nil {
		t.Fatalf("%v\n%s", err, u.said)
	}
	equal(w, "the partition", w.partition(), int32(0))
	equal(w, "how many may be evicted", w.budget().Spec.MaxUnavailable.String(), "1")
}

// TestMembersThatStayWithoutAMemcachedMayBeEvicted, although no operator would let them step out before.
func TestMembersThatStayWithoutAMemcachedMayBeEvicted(t *testing.T) {
	tier.Second(t, "TestAMemberOfADrainedNodeIsEvictedOutOfTheRing")
	w := newWorld(t)
	stepping(w, 2, func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Evictions = cachev1alpha1.EvictionsStepOut })
	w.delete(w.memcached(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
	w.eventually("the members stay alone", func() error { return orphaned(w) })
	equal(w, "how many may be evicted", w.budget().Spec.MaxUnavailable.String(), "1")
}

// evictedOut is a cluster of two members whose members step out before their evictions. Member 1 is on the first node,
// member 0 on the second, which only this test uses.
func evictedOut(w *world) (nodes [2]string) {
	w.Helper()
	for i := range nodes {
		the := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", w.namespace, i)}}
		if err := admin.Create(w.Context(), the); err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = admin.Delete(context.Background(), the) })
		nodes[i] = the.Name
	}
	kubes.PutOn(w.namespace, nodes[1])
	stepping(w, 2, func(s *cachev1alpha1.MemcachedSpec) {
		s.Rollout, s.PodDisruptionBudget.Evictions = "", cachev1alpha1.EvictionsStepOut
	})
	kubes.PutOn(w.namespace, nodes[0])
	w.delete(w.pod("cache-1"))
	w.eventually("member 1 is on another node", func() error { return w.on("cache-1", nodes[0]) })
	w.settled(2)
	kubes.PutOn(w.namespace, nodes[1])
	return nodes
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// on returns nil if the pod is ready on that node.
func (w *world) on(pod, node string) error {
	p := &corev1.Pod{}
	if err := admin.Get(w.Context(), w.key(pod), p); err != nil {
		return err
	}
	if p.Spec.NodeName != node || !isReady(p) || p.DeletionTimestamp != nil {
		return fmt.Errorf("pod %s is on %s, %s", pod, p.Spec.NodeName, asJSON(p.Status.Conditions))
	}
	return nil
}

func (w *world) cordon(node string, on bool) {
	w.Helper()
	the := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := admin.Patch(w.Context(), the, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))); err != nil {
		w.Fatal(err)
	}
}

// hasBudget returns nil if there is one, or none.
func (w *world) hasBudget(is bool) error {
	err := admin.Get(w.Context(), w.key(name), &policyv1.PodDisruptionBudget{})
	if client.IgnoreNotFound(err) == nil && is != (err == nil) {
		return fmt.Errorf("there is a budget: %t", err == nil)
	}
	return client.IgnoreNotFound(err)
}

// stepsAside returns nil if the member is out of the ring, and not ready.
func (w *world) stepsAside(member int) error {
	table, err := w.table()
	pod := w.pod(fmt.Sprintf("cache-%d", member))
	if pod == nil {
		return errors.Join(err, errors.New("it has no pod"))
	}
	if err == nil && (out(table) != fmt.Sprintf("without %d", member) || isReady(pod)) {
		err = fmt.Errorf("the table is %s, pod %s is ready: %t", asJSON(table), pod.Name, isReady(pod))
	}
	return err
}

// TestAMemberOfADrainedNodeIsEvictedOutOfTheRing: no member that is ready may be evicted. One on a cordoned node steps
// out, and is evicted then; it steps in when its new pod is ready elsewhere.
func TestAMemberOfADrainedNodeIsEvictedOutOfTheRing(t *testing.T) {
	w := newWorld(t)
	nodes := evictedOut(w)
	if err := w.evict("cache-0"); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("a member of the ring may be evicted: %v", err)
	}
	tables := w.steps()
	w.cordon(nodes[0], true)
	w.eventually("member 1 may be evicted", func() error { return w.evict("cache-1") })
	if err := w.evict("cache-0"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a member of the ring may be evicted: %v", err)
	}
	w.eventually("member 1 is on another node", func() error { return w.on("cache-1", nodes[1]) })
	w.settled(2)
	w.allRoutedTo(2, 2)
	var want []string
	for _, ring := range []string{"without 1", "whole"} {
		for _, state := range []string{"prepare", "settle", "move", "finish", "stable"} {
			want = append(want, state+" "+ring)
		}
	}
	equal(w, "what routers were told", tables(), append([]string{"stable whole"}, want...))
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	w.quiet()
}

// aside is a cluster as of evictedOut whose member 1 waits for its eviction from that node. was is its pod.
func aside(w *world) (node string, was types.UID) {
	w.Helper()
	node, was = evictedOut(w)[0], w.pod("cache-1").UID
	w.cordon(node, true)
	w.eventually("member 1 is out, and not ready", func() error { return w.stepsAside(1) })
	return node, was
}

// TestAMemberThatIsAsideComesBackAlsoIfTheRingChanges meanwhile: its word is about another ring then.
func TestAMemberThatIsAsideComesBackAlsoIfTheRingChanges(t *testing.T) {
	tier.Second(t, "TestAMemberOfADrainedNodeIsEvictedOutOfTheRing")
	w := newWorld(t)
	node, before := aside(w)
	w.change(w.memcached(), `{"spec":{"routing":{"keyPrefix":"shop:"}}}`)
	w.eventually("routers are told of the prefix", func() error {
		table, err := w.table()
		if err == nil && table.New.KeyPrefix != "shop:" {
			err = fmt.Errorf("the table is %s", asJSON(table))
		}
		return err
	})
	w.cordon(node, false)
	w.eventually("all is as before", func() error { return routedAndSettled(2)(w) })
	equal(w, "the pod of member 1", w.pod("cache-1").UID, before)
}

// TestAMemberWhoseNodeTakesPodsAgainIsNotEvicted: it steps in, with another pod's name for each word.
func TestAMemberWhoseNodeTakesPodsAgainIsNotEvicted(t *testing.T) {
	tier.Second(t, "TestAMemberOfADrainedNodeIsEvictedOutOfTheRing")
	w := newWorld(t)
	node, before := aside(w)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonRolling)
	w.quiet()
	w.restartOperator()
	if err := w.stepsAside(1); err != nil {
		t.Error(err)
	}
	w.cordon(node, false)
	w.settled(2)
	w.allRoutedTo(2, 2)
	if after := w.pod("cache-1").UID; after != before {
		t.Error("the member has another pod")
	}
}

// TestAnOperatorThatMayNotWatchNodesSaysSo, and members may be evicted with their items.
func TestAnOperatorThatMayNotWatchNodesSaysSo(t *testing.T) {
	tier.Second(t, "TestAMemberOfADrainedNodeIsEvictedOutOfTheRing")
	w := newNamespace(t)
	w.grantHere()
	w.startOperator()
	stepping(w, 2, func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Evictions = cachev1alpha1.EvictionsStepOut })
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNodesUnknown)
	w.eventually("a member may be evicted", func() error { return w.evict("cache-0") })
	w.quiet()
}
