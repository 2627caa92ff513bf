package build

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func TestNetworkPolicyLetsInWhomItNamesAndTheClustersDrainers(t *testing.T) {
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Metrics, s.Discovery = &cachev1alpha1.MetricsSpec{}, &cachev1alpha1.DiscoverySpec{}
		s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{
			Clients:    []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Monitoring: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "prometheus"}}}},
		}
	}).Defaulted().Obj()
	other := c.DeepCopy()
	other.Name = "other"
	policy := NetworkPolicy(c, Options{}, nil)
	for name, test := range map[string]struct {
		from map[string]string
		port string
		want bool
	}{
		"a client":                      {map[string]string{"app": "web"}, "memcached", true},
		"a client at the metrics":       {map[string]string{"app": "web"}, "metrics", false},
		"a client at discovery":         {map[string]string{"app": "web"}, "discovery", true},
		"Prometheus at discovery":       {map[string]string{"app": "prometheus"}, "discovery", false},
		"any other pod at discovery":    {map[string]string{"app": "another"}, "discovery", false},
		"Prometheus":                    {map[string]string{"app": "prometheus"}, "metrics", true},
		"Prometheus at memcached":       {map[string]string{"app": "prometheus"}, "memcached", false},
		"a drainer":                     {Labels(c, cachev1alpha1.ComponentDrainer), "memcached", true},
		"a move":                        {Labels(c, cachev1alpha1.ComponentMove), "memcached", true},
		"a move at the stream":          {Labels(c, cachev1alpha1.ComponentMove), "11212", true},
		"a drainer at the stream":       {Labels(c, cachev1alpha1.ComponentDrainer), "11212", false},
		"a client at the stream":        {map[string]string{"app": "web"}, "11212", false},
		"a move of another":             {Labels(other, cachev1alpha1.ComponentMove), "memcached", false},
		"a drainer at the metrics":      {Labels(c, cachev1alpha1.ComponentDrainer), "metrics", false},
		"a drainer of another cluster":  {Labels(other, cachev1alpha1.ComponentDrainer), "memcached", false},
		"a member":                      {Labels(c, cachev1alpha1.ComponentMember), "memcached", false},
		"any other pod":                 {map[string]string{"app": "another"}, "memcached", false},
		"any other pod at the metrics":  {map[string]string{"app": "another"}, "metrics", false},
		"a pod without labels":          {nil, "memcached", false},
		"a client at a port of its own": {map[string]string{"app": "web"}, "http", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := admits(policy, test.from, test.port); got != test.want {
				t.Errorf("let in: %v, want %v", got, test.want)
			}
		})
	}
}

// admits tells whether a pod of the same namespace gets in, as a network plugin decides.
// A rule without ports or without peers allows all of them.
func admits(p *networkingac.NetworkPolicyApplyConfiguration, from map[string]string, port string) bool {
	for _, rule := range p.Spec.Ingress {
		open := len(rule.Ports) == 0
		for _, r := range rule.Ports {
			open = open || r.Port == nil || r.Port.String() == port
		}
		known := len(rule.From) == 0
		for _, peer := range rule.From {
			known = known || labels.SelectorFromSet(peer.PodSelector.MatchLabels).Matches(labels.Set(from))
		}
		if open && known {
			return true
		}
	}
	return false
}

func TestTheStreamHasAPortOfItsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		memcached, metrics, discovery, want int32
	}{
		"the next":                 {11211, 0, 0, 11212},
		"the metrics have that":    {11211, 11212, 0, 11213},
		"there is no next one":     {65535, 0, 0, 1024},
		"nor the one after it":     {65535, 1024, 0, 1025},
		"the metrics are no bar":   {11211, 9150, 0, 11212},
		"a port that needs rights": {80, 0, 0, 1024},
		"discovery has that":       {11211, 0, 11212, 11213},
		"both have those":          {11211, 11213, 11212, 11214},
	} {
		t.Run(name, func(t *testing.T) {
			c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
				s.ContainerPort = test.memcached
				if test.metrics != 0 {
					s.Metrics = &cachev1alpha1.MetricsSpec{Port: test.metrics}
				}
				if test.discovery != 0 {
					s.Discovery = &cachev1alpha1.DiscoverySpec{Port: test.discovery}
				}
			}).Defaulted().Obj()
			if got := exportPort(c); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestNetworkPolicyWithoutNamesLetsOnlyDrainersIn(t *testing.T) {
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Metrics, s.NetworkPolicy = &cachev1alpha1.MetricsSpec{}, &cachev1alpha1.NetworkPolicySpec{}
		s.Discovery = &cachev1alpha1.DiscoverySpec{}
	}).Defaulted().Obj()
	policy := NetworkPolicy(c, Options{}, nil)
	if !admits(policy, Labels(c, cachev1alpha1.ComponentDrainer), "memcached") {
		t.Error("a drainer stays outside")
	}
	for _, port := range []string{"memcached", "metrics", "discovery"} {
		if admits(policy, map[string]string{"app": "web"}, port) {
			t.Errorf("every pod gets in at %s", port)
		}
	}
	if NetworkPolicy(withStorage().Obj(), Options{}, nil) != nil {
		t.Error("there is one that the spec does not ask for")
	}
}

// The operator asks members for the state of their certificates, and gets in at no other port.
func TestNetworkPolicyLetsTheOperatorAskForCertificates(t *testing.T) {
	closed := func(s *cachev1alpha1.MemcachedSpec) { s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{} }
	secured := withStorage().With(closed).With(func(s *cachev1alpha1.MemcachedSpec) { s.TLS = &cachev1alpha1.TLSSpec{SecretName: "tls"} })
	for what, test := range map[string]struct {
		cluster *cachev1alpha1.Memcached
		options Options
		want    []string
	}{
		"with TLS":                      {secured.Defaulted().Obj(), Options{OperatorNamespace: "operators"}, []string{"11213"}},
		"an operator without namespace": {secured.Defaulted().Obj(), Options{}, nil},
		"without TLS":                   {withStorage().With(closed).Defaulted().Obj(), Options{OperatorNamespace: "operators"}, nil},
	} {
		var ports []string
		for _, rule := range NetworkPolicy(test.cluster, test.options, nil).Spec.Ingress {
			for _, peer := range rule.From {
				if s := peer.NamespaceSelector; s != nil && s.MatchLabels["kubernetes.io/metadata.name"] == "operators" {
					ports = append(ports, rule.Ports[0].Port.String())
				}
			}
		}
		if !slices.Equal(ports, test.want) {
			t.Errorf("%s: at ports %v, want %v", what, ports, test.want)
		}
	}
}
