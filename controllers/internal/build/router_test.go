package build

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

func routedCluster(change ...func(*cachev1alpha1.MemcachedSpec)) *cachev1alpha1.Memcached {
	b := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](2)} })
	for _, c := range change {
		b = b.With(c)
	}
	return b.Defaulted().Obj()
}

func TestARoutersFlagsSayWhatTheSpecSays(t *testing.T) {
	plain := []string{"/drainer", "route", "--listen=:11211", "--admin=:11212", "--ring-file=/table/table.json"}
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		want   []string
	}{
		"the least": {func(*cachev1alpha1.MemcachedSpec) {}, plain},
		"the port of /ready": {
			func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = 11212 },
			[]string{"/drainer", "route", "--listen=:11212", "--admin=:11213", "--ring-file=/table/table.json"},
		},
		"TLS and logins, as the members'": {
			func(s *cachev1alpha1.MemcachedSpec) {
				s.TLS = &cachev1alpha1.TLSSpec{SecretName: "certificate", ClientAuth: cachev1alpha1.ClientAuthRequired}
				s.Auth = &cachev1alpha1.AuthSpec{SecretName: "logins"}
			},
			slices.Concat(plain, []string{"--tls-dir=/tls", "--client-tls-dir=/tls", "--client-verify=true", "--auth-file=/auth/auth-file", "--client-auth-file=/auth/auth-file"}),
		},
		"clients without certificates": {
			func(s *cachev1alpha1.MemcachedSpec) { s.TLS = &cachev1alpha1.TLSSpec{SecretName: "certificate"} },
			slices.Concat(plain, []string{"--tls-dir=/tls", "--client-tls-dir=/tls"}),
		},
		"failed reads": {
			func(s *cachev1alpha1.MemcachedSpec) { s.Router.FailedReads = cachev1alpha1.FailedReadsError },
			slices.Concat(plain, []string{"--failed-reads=error"}),
		},
		"failed reads, as by default": {func(s *cachev1alpha1.MemcachedSpec) { s.Router.FailedReads = cachev1alpha1.FailedReadsMiss }, plain},
		"large items, and little memory": {
			func(s *cachev1alpha1.MemcachedSpec) {
				s.MaxItemSize = ptr.To(resource.MustParse("2Mi"))
				s.Router.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
			},
			slices.Concat(plain, []string{"--max-item-size=2097152", "--max-memory=67108864"}),
		},
	} {
		got := Routers(routedCluster(test.change), Options{}).Spec.Template.Spec.Containers[0].Command
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// TestRoutersAreNoMembers: no Service, budget, policy or StatefulSet of the members selects a
// router, and no object of the routers selects a member.
func TestRoutersAreNoMembers(t *testing.T) {
	c := routedCluster(func(s *cachev1alpha1.MemcachedSpec) {
		s.PodTemplate.Labels = map[string]string{cachev1alpha1.LabelComponent: "x"}
		s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{}
	})
	selects := func(selector, labels map[string]string) bool {
		for key, value := range selector {
			if labels[key] != value {
				return false
			}
		}
		return true
	}
	router, member := Routers(c, Options{}).Spec.Template.Labels, StatefulSet(c, Options{}, 1).Spec.Template.Labels
	for name, s := range map[string]map[string]string{
		"Service": RouterService(c).Spec.Selector, "Deployment": Routers(c, Options{}).Spec.Selector.MatchLabels,
		"budget": RouterBudget(c).Spec.Selector.MatchLabels, "policy": RouterPolicy(c, Options{}).Spec.PodSelector.MatchLabels,
	} {
		if !selects(s, router) || selects(s, member) {
			t.Errorf("%s of the routers selects %v", name, s)
		}
	}
	for name, s := range map[string]map[string]string{"Service": Service(c).Spec.Selector, "policy": NetworkPolicy(c, Options{}, nil).Spec.PodSelector.MatchLabels} {
		if selects(s, router) || !selects(s, member) {
			t.Errorf("%s of the members selects %v", name, s)
		}
	}
}

func TestRouterTableNamesTheServersAsClientsDo(t *testing.T) {
	c := routedCluster(func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing.Client, s.Routing.KeyPrefix, s.Routing.ServerName = "twemproxy", "shop:", "m{ordinal}"
	})
	want := contract.Ring{Client: "twemproxy", KeyPrefix: "shop:", Servers: []string{
		"m0=cache-0.cache." + c.Namespace + ".svc:11211", "m1=cache-1.cache." + c.Namespace + ".svc:11211",
	}}
	text := RouterTableText(RouterTable(c, nil, contract.RingStable, 2, 0, nil, 7))
	got, err := contract.ParseRingTable([]byte(text))
	if err != nil || got.Number != 7 || got.State != contract.RingStable || cmp.Diff(want, got.New) != "" {
		t.Errorf("the table is %s, %v; want %v", text, err, want)
	}
}

func TestRouterTableNumber(t *testing.T) {
	now := contract.NumberTime(3600)
	for text, want := range map[string]int64{
		`{"number":17,"state":"stable","new":{"servers":["a:1"]}}`:                  17,
		`{"number":9000000000000000000,"state":"stable","new":{"servers":["a:1"]}}`: 0, // routers could never be told a higher number
		`{"number":-1,"state":"stable","new":{"servers":["a:1"]}}`:                  0,
		`{"number":17,"state":"unheard","new":{"servers":["a:1"]}}`:                 0,
		`{"number":17,"new":{"servers":["a:1"]}}`:                                   0,
		`{"number":17,"state":null,"new":{"servers":["a:1"]}}`:                      0,
		`{"number":17,"state":"stable"}`:                                            0,
		`{"number":17,"state":"move","old":{},"new":{"servers":["a:1"]}}`:           0,
		"nonsense": 0,
		"":         0,
	} {
		if got := RouterTableNumber(&corev1.ConfigMap{Data: map[string]string{RouterTableKey: text}}, now); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	if got := RouterTableNumber(nil, now); got != 0 {
		t.Errorf("none: %d", got)
	}
}

// TestATableOfOtherServersIsNotRead, because any client may have written it.
func TestATableOfOtherServersIsNotRead(t *testing.T) {
	c := routedCluster()
	ours := func(i int) string { return fmt.Sprintf("cache-%d.cache.%s.svc:11211", i, c.Namespace) }
	for name, test := range map[string]struct {
		old, new []string
		is       bool
	}{
		"ours":                   {[]string{ours(0), ours(1), ours(2)}, []string{ours(0), ours(1)}, true},
		"by other names":         {[]string{"x=" + ours(0)}, []string{ours(0)}, true},
		"at another port":        {[]string{ours(0)}, []string{strings.Replace(ours(0), "11211", "11311", 1)}, true},
		"Services":               {[]string{ours(0)}, []string{"cache-member-0." + c.Namespace + ".svc:11211"}, true},
		"a stranger's, new":      {[]string{ours(0)}, []string{ours(0), "stranger:11211"}, false},
		"a stranger's, old":      {[]string{"stranger:11211"}, []string{ours(0)}, false},
		"another cluster's":      {[]string{ours(0)}, []string{"cache-0.other." + c.Namespace + ".svc:11211"}, false},
		"by our names":           {[]string{ours(0)}, []string{"cache-0=stranger:11211"}, false},
		"in another order":       {[]string{ours(0), ours(1)}, []string{ours(1), ours(0)}, false},
		"which can't be servers": {[]string{ours(0)}, []string{"cache-0"}, false},
	} {
		text := RouterTableText(&contract.RingTable{Number: 7, State: contract.RingMove, Old: &contract.Ring{Servers: test.old}, New: contract.Ring{Servers: test.new}})
		if got := RouterTableIn(c, &corev1.ConfigMap{Data: map[string]string{RouterTableKey: text}}); (got != nil) != test.is {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestTheRingOfATableIsOneThatIsKnown, or none.
func TestTheRingOfATableIsOneThatIsKnown(t *testing.T) {
	named := func(name string) func(s *cachev1alpha1.MemcachedSpec) {
		return func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client, s.Routing.ServerName = "twemproxy", name }
	}
	c := routedCluster(named("new-{ordinal}"))
	before := RingOf(routedCluster(named("old-{ordinal}")), 3)
	told := func(name string) *contract.Ring {
		return &RouterTable(routedCluster(named(name)), nil, contract.RingStable, 2, 0, nil, 7).New
	}
	if got := RouterRing(c, told("new-{ordinal}"), before, RingOf(c, 3)); got != RingOf(c, 2) {
		t.Errorf("the wanted ring: %+v", got)
	}
	if got := RouterRing(c, told("old-{ordinal}"), before, RingOf(c, 3)); got != before.Of(2) {
		t.Errorf("the ring before: %+v", got)
	}
	if got := RouterRing(c, told("other-{ordinal}"), before, RingOf(c, 3), ring.Ring{}); got == RingOf(c, 2) || got == before.Of(2) || got == (ring.Ring{Size: 2}) {
		t.Errorf("an unknown one: %+v", got)
	}
	if got := RouterRing(c, nil, before); got != (ring.Ring{}) {
		t.Errorf("none: %+v", got)
	}
}

// TestRoutersLetIn clients, monitoring and the operator, and no client if the spec names none.
func TestRoutersLetIn(t *testing.T) {
	if RouterPolicy(routedCluster(), Options{OperatorNamespace: "x"}) != nil {
		t.Error("a policy that the spec does not ask for")
	}
	closed := RouterPolicy(routedCluster(func(s *cachev1alpha1.MemcachedSpec) { s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{} }), Options{})
	if len(closed.Spec.Ingress) != 0 {
		t.Errorf("no client is named, and %v get in", closed.Spec.Ingress)
	}
	c := apitest.MakeMemcached("cache").EveryField().Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Router = &cachev1alpha1.RouterSpec{}
	}).Defaulted().Obj()
	open := RouterPolicy(c, Options{OperatorNamespace: "operator"})
	var ports []string
	for _, rule := range open.Spec.Ingress {
		ports = append(ports, rule.Ports[0].Port.String())
		if len(rule.From) == 0 {
			t.Errorf("every client gets in at %s", rule.Ports[0].Port)
		}
	}
	if diff := cmp.Diff([]string{"memcached", "admin", "admin"}, ports); diff != "" {
		t.Error(diff)
	}
	operators := open.Spec.Ingress[2].From
	if len(operators) != 1 || operators[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "operator" {
		t.Errorf("the operator's rule is %v", operators)
	}
	routers := 0
	for _, from := range NetworkPolicy(c, Options{}, nil).Spec.Ingress[0].From {
		if from.PodSelector != nil && from.PodSelector.MatchLabels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentRouter {
			routers++
		}
	}
	if routers != 1 {
		t.Errorf("the members let routers in %d times", routers)
	}
}

// TestRoutersAreNearAndApart: traffic stays near, routers are spread over zones and nodes without
// being kept from running, and a drain of nodes takes one at a time.
func TestRoutersAreNearAndApart(t *testing.T) {
	c := routedCluster()
	if got := *RouterService(c).Spec.TrafficDistribution; got != corev1.ServiceTrafficDistributionPreferSameNode {
		t.Errorf("traffic is distributed by %s", got)
	}
	d := Routers(c, Options{})
	var keys []string
	for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
		keys = append(keys, *s.TopologyKey)
		if *s.MaxSkew != 1 || *s.WhenUnsatisfiable != corev1.ScheduleAnyway {
			t.Errorf("%s: %s with a skew of %d", *s.TopologyKey, *s.WhenUnsatisfiable, *s.MaxSkew)
		}
		if diff := cmp.Diff(d.Spec.Selector.MatchLabels, s.LabelSelector.MatchLabels); diff != "" {
			t.Errorf("%s: counts others than its Deployment: (-want +got)\n%s", *s.TopologyKey, diff)
		}
	}
	if diff := cmp.Diff([]string{corev1.LabelTopologyZone, corev1.LabelHostname}, keys); diff != "" {
		t.Error(diff)
	}
	b := RouterBudget(c).Spec
	if b.MinAvailable != nil || b.MaxUnavailable.IntValue() != 1 || *b.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
		t.Errorf("the budget is %v, %v, %s", b.MinAvailable, b.MaxUnavailable, *b.UnhealthyPodEvictionPolicy)
	}
}

func TestRoutersHaveABudgetUnlessItIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		want   bool
	}{
		"by default": {func(*cachev1alpha1.MemcachedSpec) {}, true},
		"asked for":  {func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Enabled = ptr.To(true) }, true},
		"refused":    {func(s *cachev1alpha1.MemcachedSpec) { s.PodDisruptionBudget.Enabled = ptr.To(false) }, false},
		"no routers": {func(s *cachev1alpha1.MemcachedSpec) { s.Router = nil }, false},
	} {
		if got := RouterBudget(routedCluster(test.change)) != nil; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestRoutersHaveTheTimeToEnd: the kubelet waits longer than a router lingers and drains by its
// default flags. There is no preStop hook, because the router itself lingers.
func TestRoutersHaveTheTimeToEnd(t *testing.T) {
	const starts = 5 * time.Second // until the signal arrives, and to end after the last answer
	pod := Routers(routedCluster(), Options{}).Spec.Template.Spec
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < contract.RouterLinger+contract.RouterSpread+contract.RouterDrain+starts {
		t.Errorf("%v to end", grace)
	}
	times := func(command []string) (n int, sum time.Duration) {
		for _, arg := range command {
			for _, flag := range []string{contract.FlagLinger, contract.FlagSpread, contract.FlagDrainTimeout} {
				if text, is := strings.CutPrefix(arg, "--"+flag+"="); is {
					d, err := time.ParseDuration(text)
					if err != nil {
						t.Error(err)
					}
					n, sum = n+1, sum+d
				}
			}
		}
		return n, sum
	}
	if n, sum := times(pod.Containers[0].Command); n > 0 {
		t.Errorf("%v is not what the grace period is for", sum)
	}
	for _, grace := range []int64{1, 10, 19} { // a person gives it less
		pod := Routers(routedCluster(func(s *cachev1alpha1.MemcachedSpec) { s.Router.PodTemplate.TerminationGracePeriodSeconds = &grace }), Options{}).Spec.Template.Spec
		if n, sum := times(pod.Containers[0].Command); n != 3 || sum <= 0 || sum >= time.Duration(grace)*time.Second {
			t.Errorf("of %d s, %d flags take %v", grace, n, sum)
		}
	}
	if pod.Containers[0].Lifecycle != nil {
		t.Errorf("the container has %v", pod.Containers[0].Lifecycle)
	}
}

// TestRouterPodsAreRestricted: they pass Kubernetes' restricted profile.
func TestRouterPodsAreRestricted(t *testing.T) {
	d := Routers(routedCluster(), Options{OperatorImage: "operator:v1"})
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if *c.Image != "operator:v1" || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation ||
		!*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod is %v, %v", pod.SecurityContext, c.SecurityContext)
	}
	if got := d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(); got != 0 {
		t.Errorf("a roll-out takes %d routers away", got)
	}
	if *pod.TerminationGracePeriodSeconds < 20 || strings.Join(c.Command, " ") == "" {
		t.Errorf("a router has %d s to end", *pod.TerminationGracePeriodSeconds)
	}
}

// TestRouterTablesFollowEachOther: rings stay from the second state on, even if the spec changes,
// and each state only follows the state before.
func TestRouterTablesFollowEachOther(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		c := routedCluster()
		c.UID, c.Spec.Router.Exclusive = "the-uid", exclusive
		tablesFollow(t, c)
	}
}

func tablesFollow(t *testing.T, c *cachev1alpha1.Memcached) {
	t.Helper()
	var before *contract.RingTable
	for state := contract.RingStable; state <= contract.RingFinish; state++ {
		size := int32(3)
		if state > contract.RingStable {
			size = 2
		}
		number := int64(7 + state)
		table := RouterTable(c, nil, state, size, 0, before, number)
		if table == nil {
			t.Fatalf("no table for %s", state)
		}
		if again := RouterTable(c, nil, state, size, 0, table, number); cmp.Diff(table, again) != "" {
			t.Errorf("%s again is %+v, was %+v", state, again, table)
		}
		if _, err := contract.ParseRingTable([]byte(RouterTableText(table))); err != nil {
			t.Errorf("%s: %v", state, err)
		}
		if before != nil && table.Before != before.Number || table.Key != string(c.UID) {
			t.Errorf("%s comes after %d, with key %q", state, table.Before, table.Key)
		}
		if state > contract.RingStable && (len(table.Old.Servers) != 3 || len(table.New.Servers) != 2 || table.Shared == c.Spec.Router.Exclusive) {
			t.Errorf("%s: %+v", state, table)
		}
		for later := contract.RingStable; later <= contract.RingFinish; later++ {
			may := later == contract.RingStable || later == state || later == state+1
			if got := RouterTable(c, nil, later, size, 0, table, 100); (got != nil) != may {
				t.Errorf("%s after %s: %+v", later, state, got)
			}
		}
		before = table
	}
}
