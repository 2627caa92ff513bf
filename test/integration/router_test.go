package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

const routerName = name + "-router"

func routed(s *cachev1alpha1.MemcachedSpec) {
	s.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2)}
}

// routerObjects returns the kinds of the routers' objects that exist.
func (w *world) routerObjects() (kinds []string) {
	w.Helper()
	for kind, o := range map[string]client.Object{
		"ConfigMap": &corev1.ConfigMap{}, "Deployment": &appsv1.Deployment{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "Service": &corev1.Service{},
	} {
		if err := admin.Get(w.Context(), w.key(routerName), o); err == nil {
			kinds = append(kinds, kind)
		} else if !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (w *world) routerDeployment() *appsv1.Deployment {
	d := &appsv1.Deployment{}
	return found(w, d, admin.Get(w.Context(), w.key(routerName), d))
}

func (w *world) routerPods() (pods []corev1.Pod) {
	return slices.DeleteFunc(w.pods(), func(p corev1.Pod) bool {
		return p.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentRouter || p.DeletionTimestamp != nil
	})
}

// table returns the table that is written.
func (w *world) table() (*contract.RingTable, error) {
	config := &corev1.ConfigMap{}
	if found(w, config, admin.Get(w.Context(), w.key(routerName), config)) == nil {
		return nil, errors.New("there is no table")
	}
	return contract.ParseRingTable([]byte(config.Data["table.json"]))
}

// hesitant is a cluster of three members whose two routers don't acknowledge tables of some states.
//
// The operator's clock stands still meanwhile, since the operator waits for routers only for a while.
func hesitant(t *testing.T, hesitate func(state contract.RingState) bool) *world {
	w := newNamespace(t)
	clock := &haltedClock{}
	w.clock = clock
	w.rings = func(_ context.Context, address string, newest *controllers.SignedTable) (contract.RingAcknowledged, error) {
		_, number, err := w.toldRouter(address)
		hesitates := hesitate(newest.State)
		clock.halt(hesitates)
		if hesitates {
			return contract.RingAcknowledged{Number: number, Acknowledged: 1, Waiting: "1 request is not answered"}, err
		}
		return contract.RingAcknowledged{Number: number, Acknowledged: number}, err
	}
	w.startOperator()
	w.storageCluster(patient().With(routed), 3)
	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	w.allRoutedTo(2, 3)
	return w
}

// haltedClock is the machine's clock, and stands still while it is halted.
type haltedClock struct {
	mu sync.Mutex
	at time.Time // zero while it runs
}

func (c *haltedClock) halt(halt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !halt:
		c.at = time.Time{}
	case c.at.IsZero():
		c.at = time.Now()
	}
}

func (c *haltedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Now()
	}
	return c.at
}

func (c *haltedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// routedTo returns the table with that many servers, if all routers were told of it.
func (w *world) routedTo(routers, servers int) (*contract.RingTable, error) {
	t, err := w.table()
	if err != nil {
		return nil, err
	}
	if t.State != contract.RingStable || len(t.New.Servers) != servers {
		return nil, fmt.Errorf("the table is %s", asJSON(t))
	}
	for i, s := range t.New.Servers {
		if want := fmt.Sprintf("cache-%d.cache.%s.svc:11211", i, w.namespace); s != want {
			return nil, fmt.Errorf("server %d is %s, want %s", i, s, want)
		}
	}
	pods := w.routerPods()
	for i := range pods {
		if told := pods[i].Annotations[cachev1alpha1.AnnotationTable]; told != strconv.FormatInt(t.Number, 10) {
			return nil, fmt.Errorf("%s was told of table %q, not %d", pods[i].Name, told, t.Number)
		}
	}
	if len(pods) != routers {
		return nil, fmt.Errorf("%d routers", len(pods))
	}
	return t, nil
}

func (w *world) allRoutedTo(routers, servers int) (t *contract.RingTable) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d routers with a table of %d servers", routers, servers), func() (err error) {
		t, err = w.routedTo(routers, servers)
		return err
	})
	return t
}

// ringReader plays the routers.
func (w *world) ringReader() controllers.RingReader {
	if w.rings != nil {
		return w.rings
	}
	return func(_ context.Context, address string, _ *controllers.SignedTable) (contract.RingAcknowledged, error) {
		_, number, err := w.toldRouter(address)
		return contract.RingAcknowledged{Number: number, Acknowledged: number}, err
	}
}

// toldRouter returns the router's pod with that address, and the number of the table that it was told of.
func (w *world) toldRouter(address string) (pod string, number int64, err error) {
	host, _, err := net.SplitHostPort(address)
	pods := &corev1.PodList{}
	err = errors.Join(err, admin.List(w.Context(), pods, client.InNamespace(w.namespace), client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter}))
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.PodIP == host && p.DeletionTimestamp == nil {
			number, err := strconv.ParseInt(p.Annotations[cachev1alpha1.AnnotationTable], 10, 64)
			return p.Name, number, err
		}
	}
	return "", 0, errors.Join(err, fmt.Errorf("no router is at %s", address))
}

// tables records the states that routers were told of, each with the sizes of its rings and of the clients'
// list at that moment, until stop.
func (w *world) tables() (stop func() []string) {
	w.Helper()
	var seen []string
	listed := int(w.memcached().Status.Size)
	stopWatch := w.followConfigMaps(func(config *corev1.ConfigMap) {
		if servers, is := config.Data["servers"]; is {
			listed = len(strings.Fields(servers))
		}
		if t, err := contract.ParseRingTable([]byte(config.Data["table.json"])); err == nil {
			old := 0
			if t.Old != nil {
				old = len(t.Old.Servers)
			}
			if s := fmt.Sprintf("%s %d→%d, list %d", t.State, old, len(t.New.Servers), listed); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
	})
	return func() []string {
		stopWatch()
		return seen
	}
}

// followConfigMaps calls see with each version of a ConfigMap, until stop. stop first waits for the present versions.
func (w *world) followConfigMaps(see func(*corev1.ConfigMap)) (stop func()) {
	w.Helper()
	watched, err := admin.Watch(w.Context(), &corev1.ConfigMapList{}, client.InNamespace(w.namespace))
	if err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex
	versions := map[types.UID]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watched.ResultChan() {
			if config, is := e.Object.(*corev1.ConfigMap); is {
				mu.Lock()
				see(config)
				versions[config.UID] = config.ResourceVersion
				mu.Unlock()
			}
		}
	}()
	return func() {
		w.Helper()
		w.eventually("the watch has each ConfigMap as it is", func() error {
			var now corev1.ConfigMapList
			if err := admin.List(w.Context(), &now, client.InNamespace(w.namespace)); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range now.Items {
				if c := &now.Items[i]; versions[c.UID] != c.ResourceVersion {
					return fmt.Errorf("%s: version %s, not %s", c.Name, versions[c.UID], c.ResourceVersion)
				}
			}
			return nil
		})
		watched.Stop()
		<-done
	}
}

func TestRoutersFollowEachScaling(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(patient().With(routed), 3)
	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	first := w.allRoutedTo(2, 3)
	w.noCondition(cachev1alpha1.ConditionRoutersReady)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
	equal(w, "status.router", w.memcached().Status.Router, &cachev1alpha1.RouterStatus{
		Address: fmt.Sprintf("cache-router.%s.svc:11211", w.namespace), Replicas: 2, Ready: 2,
	})
	tables := w.tables()
	w.scale(2)
	w.settled(2)
	second := w.allRoutedTo(2, 2)
	w.scale(3)
	w.settled(3)
	third := w.allRoutedTo(2, 3)
	equal(w, "what routers were told", tables(), []string{
		"stable 0→3, list 3", "prepare 3→2, list 3", "settle 3→2, list 3", "move 3→2, list 2", "finish 3→2, list 2", "stable 0→2, list 2",
		"prepare 2→3, list 2", "settle 2→3, list 2", "move 2→3, list 3", "finish 2→3, list 3", "stable 0→3, list 3",
	})
	if first.Number >= second.Number || second.Number >= third.Number {
		t.Errorf("the tables' numbers are %d, %d, %d", first.Number, second.Number, third.Number)
	}
	if first.Signer == "" || second.Signer != first.Signer || third.Signer != first.Signer {
		t.Errorf("the tables were signed by %q, %q, %q", first.Signer, second.Signer, third.Signer)
	}
	if !second.Acknowledged && !third.Acknowledged { // one acknowledgement could have come when the wait was over
		t.Error("routers are not told that all had acknowledged the table before")
	}
	w.change(w.memcached(), `{"spec":{"routing":{"client":"dalli"}}}`)
	w.eventually("another routing", func() error {
		if table, err := w.routedTo(2, 3); err != nil || table.New.Client != "dalli" || table.Number <= third.Number {
			return fmt.Errorf("%s, %w", asJSON(table), err)
		}
		return nil
	})
}

func TestRoutersComeAndGoOnRequest(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	equal(w, "objects that the spec doesn't want", w.routerObjects(), nil)
	w.noCondition(cachev1alpha1.ConditionRoutersReady)
	w.change(w.memcached(), `{"spec":{"router":{"replicas":2},"networkPolicy":{"clients":[{"podSelector":{"matchLabels":{"app":"web"}}}]}}}`)
	w.allRoutedTo(2, 2)
	w.noCondition(cachev1alpha1.ConditionRoutersReady)
	equal(w, "the routers' objects", w.routerObjects(), []string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"})
	if p := w.networkPolicy(); len(p.Spec.Ingress[0].From) != 4 {
		t.Errorf("the members' policy doesn't let routers in: %s", asJSON(p.Spec.Ingress[0]))
	}
	w.change(w.memcached(), `{"spec":{"router":null}}`)
	w.eventually("no routers", func() error {
		if left, pods := w.routerObjects(), w.routerPods(); len(left) > 0 || len(pods) > 0 {
			return fmt.Errorf("%v, %d pods", left, len(pods))
		}
		return nil
	})
	w.noCondition(cachev1alpha1.ConditionRoutersReady)
	w.eventually("a status without routers", func() error {
		if s := w.memcached().Status.Router; s != nil {
			return fmt.Errorf("it is %s", asJSON(s))
		}
		return nil
	})
}

func TestRoutersThatAreNotReadyAreShown(t *testing.T) {
	tier.Second(t, "TestRoutersReadySaysWhatIsTheMatter")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"router":{"replicas":2}}}`)
	w.condition(cachev1alpha1.ConditionRoutersReady, "False", cachev1alpha1.ReasonRoutersNotReady)
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonRoutersNotReady)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	kubes.Unready(w.namespace, false)
	w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
}

// TestRoutersOfAnAutoscaler shows that without spec.router.replicas, another client sets the number of routers.
func TestRoutersOfAnAutoscaler(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }), 2)
	w.allRoutedTo(1, 2)
	w.change(w.routerDeployment(), `{"spec":{"replicas":3}}`)
	w.allRoutedTo(3, 2)
	w.change(w.memcached(), `{"spec":{"router":{"resources":{"requests":{"cpu":"1"}}}}}`)
	w.eventually("routers with other resources", func() error {
		if cpu := w.routerDeployment().Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
			return fmt.Errorf("cpu %s", cpu)
		}
		return nil
	})
	w.allRoutedTo(3, 2)
	w.noCondition(cachev1alpha1.ConditionRoutersReady)
}

// TestRoutersKeepTheirTableWhileTheClusterHibernates because a router without servers would not start.
func TestRoutersKeepTheirTableWhileTheClusterHibernates(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(routed), 2)
	before := w.allRoutedTo(2, 2)
	w.scale(0)
	w.settled(0)
	equal(w, "the table", w.allRoutedTo(2, 2), before)
	w.scale(2)
	w.settled(2)
	equal(w, "the table", w.allRoutedTo(2, 2), before)
}

func TestRouterNamesOfAnotherOwner(t *testing.T) {
	for kind, foreign := range map[string]client.Object{
		"service": &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		"table":   &corev1.ConfigMap{Data: map[string]string{"mine": "yes"}},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind != "table" {
				tier.Second(t, "TestRouterNamesOfAnotherOwner")
			}
			w := newWorld(t)
			foreign.SetName(routerName)
			w.create(foreign)
			version := foreign.GetResourceVersion()
			w.storageClusterUnsettled(2)
			w.settled(2)
			w.change(w.memcached(), `{"spec":{"router":{"replicas":1}}}`)
			w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
			if err := admin.Get(w.Context(), w.key(routerName), foreign); err != nil || foreign.GetResourceVersion() != version {
				t.Errorf("it was written: %s, %v", asJSON(foreign), err)
			}
			w.delete(foreign)
			w.allRoutedTo(1, 2)
			w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
			equal(w, "its controller", metav1.GetControllerOf(w.routerDeployment()).UID, w.memcached().UID)
		})
	}
}

// TestTableThatIsMadeAgainIsNewer because routers ignore a table with a smaller number.
func TestTableThatIsMadeAgainIsNewer(t *testing.T) {
	tier.Second(t, "TestRouterTablesFollowEachOther")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(routed), 2)
	before := w.allRoutedTo(2, 2)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: routerName, Namespace: w.namespace}}
	w.delete(config)
	w.eventually("a newer table", func() error {
		if after, err := w.routedTo(2, 2); err != nil || after.Number <= before.Number {
			return fmt.Errorf("%s after table %d, %w", asJSON(after), before.Number, err)
		}
		return nil
	})
	after := w.allRoutedTo(2, 2)
	w.change(config, `{"data":{"table.json":"nonsense"}}`)
	w.eventually("a table that can be read", func() error {
		if rewritten, err := w.routedTo(2, 2); err != nil || rewritten.Number <= after.Number {
			return fmt.Errorf("%s after table %d, %w", asJSON(rewritten), after.Number, err)
		}
		return nil
	})
	w.quiet()
}

// TestATableOfAStrangerIsWrittenAnew shows that routers don't ask a stranger's servers for long, and don't take
// a stranger's table.
func TestATableOfAStrangerIsWrittenAnew(t *testing.T) {
	tier.Second(t, "TestATableOfAStranger")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(routed), 2)
	ours := w.allRoutedTo(2, 2)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: routerName, Namespace: w.namespace}}
	for what, forge := range map[string]func(t *contract.RingTable){
		"a stranger has signed it":             func(t *contract.RingTable) { t.Signer = contract.NewRingSigner().Public() },
		"a stranger has signed the one before": func(t *contract.RingTable) { t.Signer, t.Number = contract.NewRingSigner().Public(), t.Number-1 },
		"it is from the future, stable":        func(t *contract.RingTable) { t.Number, t.Shared = contract.NumberAt(time.Now().Add(time.Hour)), true },
	} {
		before := w.allRoutedTo(2, 2)
		forged := *before
		forged.Number++
		forge(&forged)
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"table.json": asJSON(forged)}})
		if err != nil {
			t.Fatal(err)
		}
		w.change(config, string(patch))
		w.eventually(what, func() error {
			after, err := w.routedTo(2, 2)
			if err == nil && (after.Signer != ours.Signer || after.Number <= before.Number) {
				err = fmt.Errorf("%s after table %d", asJSON(after), before.Number)
			}
			return err
		})
		if n := len(w.memcached().Status.Servers); n != 2 {
			t.Errorf("%s: clients are told of %d servers", what, n)
		}
	}
	w.quiet()
}

// TestARingChangeGoesOnIfItsTableIsDeletedOrSpoilt because routers would miss items, or have old ones, if a
// state were skipped.
func TestARingChangeGoesOnIfItsTableIsDeletedOrSpoilt(t *testing.T) {
	var holds atomic.Bool // routers don't acknowledge settle
	w := hesitant(t, func(state contract.RingState) bool { return state == contract.RingSettle && holds.Load() })
	holds.Store(true)
	w.scale(2)
	var last *contract.RingTable
	is := func(what string) {
		w.Helper()
		w.eventually(what, func() error {
			t, err := w.table()
			if err == nil && (t.State != contract.RingSettle || len(t.New.Servers) != 2 || len(t.Old.Servers) != 3 || last != nil && t.Before != last.Number) {
				err = fmt.Errorf("the table is %s", asJSON(t))
			}
			if err == nil {
				last = t
			}
			return err
		})
	}
	is("state settle")
	w.rests()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: routerName, Namespace: w.namespace}}
	w.delete(config)
	is("settle, after it was deleted")
	w.rests()
	w.change(config, `{"data":{"table.json":"nonsense"}}`)
	is("settle, after it was spoilt")
	holds.Store(false)
	w.settled(2)
	w.eventually("a table of two members", func() error { _, err := w.routedTo(2, 2); return err })
}

// TestRoutersThatNeverAcknowledgeHoldAScalingUpOnlyForAWhile also shows that status names these routers, and
// that an operator that has just started waits no longer.
func TestRoutersThatNeverAcknowledgeHoldAScalingUpOnlyForAWhile(t *testing.T) {
	tier.Second(t, "TestRoutersGoThroughTheStatesOfARingChange")
	var silent atomic.Bool
	w := hesitant(t, func(contract.RingState) bool { return silent.Load() })
	tables := w.tables()
	// The test sets the operator's clock, and so how long the operator waits.
	clock := testingclock.NewFakePassiveClock(time.Now())
	w.stopOperator()
	w.clock = clock
	w.startOperator()
	silent.Store(true)
	w.scale(2)
	for state := contract.RingPrepare; state <= contract.RingFinish; state++ {
		w.eventually("state "+state.String(), func() error {
			table, err := w.table()
			if err != nil || table.State != state {
				return fmt.Errorf("the table is %s, %w", asJSON(table), err)
			}
			if table.Acknowledged && state != contract.RingPrepare { // stable was acknowledged
				t.Errorf("it says that the one before was acknowledged: %s", asJSON(table))
			}
			return nil
		})
		left := contract.RingWaits / 2 // status has details after a moment, which is shorter than the wait for a state
		w.eventually("status names the routers", func() error {
			const step = 100 * time.Millisecond
			if left > 0 {
				clock.SetTime(clock.Now().Add(step))
				left -= step
			}
			if r := w.memcached().Status.Router; r == nil || len(r.Behind) == 0 {
				return fmt.Errorf("it is %s", asJSON(r))
			}
			return nil
		})
		w.stopOperator()
		clock.SetTime(clock.Now().Add(contract.RingWaits + 10*time.Second))
		w.startOperator()
	}
	w.settled(2)
	w.eventually("a table of two members", func() error { _, err := w.routedTo(2, 2); return err })
	equal(w, "what routers were told", tables(), []string{
		"stable 0→3, list 3", "prepare 3→2, list 3", "settle 3→2, list 3", "move 3→2, list 2", "finish 3→2, list 2", "stable 0→2, list 2",
	})
}
