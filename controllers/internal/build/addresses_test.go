package build

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
)

func stable(client cachev1alpha1.Client) func(*cachev1alpha1.MemcachedSpec) {
	return func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing.Addresses, s.Routing.Client = cachev1alpha1.AddressesStable, client
	}
}

func TestAMembersServiceLeadsToItsPodAlone(t *testing.T) {
	c := withStorage().With(stable("dalli")).Defaulted().Obj()
	service := convert[corev1.Service](MemberService(c, nil, 1, ""))
	selector := labels.SelectorFromSet(service.Spec.Selector)
	pod := Labels(c, cachev1alpha1.ComponentMember)
	for name, want := range map[string]bool{"cache-1": true, "cache-11": false, "cache-0": false} {
		pod["statefulset.kubernetes.io/pod-name"] = name
		if got := selector.Matches(labels.Set(pod)); got != want {
			t.Errorf("it leads to %s: %v", name, got)
		}
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone || service.Name != "cache-member-1" || service.Spec.Ports[0].Port != 11211 || len(service.Annotations) > 0 {
		t.Errorf("%+v", service)
	}
	if s := convert[corev1.Service](MemberService(c, nil, 1, "2030-01-01T00:00:00Z")); s.Annotations[cachev1alpha1.AnnotationUnlisted] != "2030-01-01T00:00:00Z" {
		t.Errorf("annotations %v", s.Annotations)
	}
	for _, cluster := range []string{"c", "cache-member-1", strings.Repeat("x", 52)} {
		for _, ordinal := range []int32{0, 10, cachev1alpha1.MaxSize - 1} {
			name := MemberServiceName(cluster, ordinal)
			if got, ok := MemberServiceOrdinal(cluster, name); !ok || got != ordinal || len(validation.IsDNS1035Label(name)) > 0 {
				t.Errorf("%s: got %d %v", name, got, ok)
			}
		}
	}
}

// The names that clients are told and hash, and the addresses at which drainers connect.
func TestStableAddressesAreOnTheListAndInTheRing(t *testing.T) {
	for client, test := range map[cachev1alpha1.Client]struct {
		serverName string
		drainers   []string
		port       string
	}{
		"gomemcache": {"", []string{"cache-member-0.shop.svc=cache-0.cache.shop.svc:11211", "cache-member-1.shop.svc=cache-1.cache.shop.svc:11211"}, ""},
		"twemproxy":  {"shard{ordinal}", []string{"shard0=cache-0.cache.shop.svc:11211", "shard1=cache-1.cache.shop.svc:11211"}, ""},
		// evcache hashes addresses, so the drainers look up the same names as the clients.
		"evcache": {"", []string{"cache-member-0.shop.svc=cache-member-0.shop.svc:11211", "cache-member-1.shop.svc=cache-member-1.shop.svc:11211"}, ""},
	} {
		t.Run(string(client), func(t *testing.T) {
			c := withStorage().With(stable(client)).Defaulted().Obj()
			c.Spec.Routing.ServerName = test.serverName
			if diff := cmp.Diff([]string{"cache-member-0.shop.svc:11211", "cache-member-1.shop.svc:11211"}, Servers(c, nil, 2)); diff != "" {
				t.Errorf("the list: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.drainers, namedServers(c, nil, RingOf(c, 2))); diff != "" {
				t.Errorf("the drainers' list: -want +got:\n%s", diff)
			}
			list := TheList(c, nil, 1, []Endpoint{{"cache-0", "10.96.0.7"}})
			if n := list.Nodes[0]; n.Host != "cache-member-0.shop.svc" || n.IP != "10.96.0.7" {
				t.Errorf("discovery tells %v", n)
			}
			args := MoveJob(c, Options{}, Move{Claim: "data-cache-1", UID: "uid", Ordinal: 1, Target: "1-a", Members: 2, Lost: []int32{0}}).Spec.Template.Spec.Containers[0].Command
			_, source, _ := strings.Cut(test.drainers[1], "=")
			_, lost, _ := strings.Cut(test.drainers[0], "=")
			if !slices.Contains(args, "--source="+source) || !slices.Contains(args, "--discard="+lost) {
				t.Errorf("a move has %q", args)
			}
			was := c.DeepCopy()
			was.Spec.Routing.Addresses = cachev1alpha1.AddressesPod
			before, after := RingOf(was, 3), RingOf(c, 3)
			if moves := ring.Share(before, after) > 0; moves != (client == "evcache") {
				t.Errorf("items have to be moved: %v", moves)
			}
			if RingOf(was, 3).Fragile() != (client == "evcache") || after.Fragile() || ring.Share(after, after.Of(2)) > 0.7 {
				t.Errorf("the ring is %s", after)
			}
			back, err := ring.Parse(ring.Record{Serial: 1, Ring: after}.String())
			if err != nil || back.Ring != after {
				t.Errorf("%v: %s is read back as %s", err, after, back.Ring)
			}
		})
	}
}

// A list of some Services and some pods would be a ring that no client ever has.
func TestTheListNamesAllServicesOrNone(t *testing.T) {
	pods := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}}
	service := func(ip string) (s corev1.Service) { s.Spec.ClusterIP = ip; return s }
	for name, test := range map[string]struct {
		services map[int32]corev1.Service
		want     []Endpoint
	}{
		"none yet":   {nil, pods},
		"one":        {map[int32]corev1.Service{0: service("10.96.0.7")}, pods},
		"no address": {map[int32]corev1.Service{0: service("10.96.0.7"), 1: service(corev1.ClusterIPNone)}, pods},
		"both":       {map[int32]corev1.Service{0: service("10.96.0.7"), 1: service("10.96.0.8")}, []Endpoint{{"cache-0", "10.96.0.7"}, {"cache-1", "10.96.0.8"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, StableEndpoints("cache", 2, test.services, pods)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
