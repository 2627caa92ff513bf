package build

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// clusterAt is a cluster whose specification has this port.
func clusterAt(port int32, more ...func(*cachev1alpha1.MemcachedSpec)) *cachev1alpha1.Memcached {
	b := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = port })
	for _, with := range more {
		b = b.With(with)
	}
	return b.Defaulted().Obj()
}

func calledBy(client string) func(*cachev1alpha1.MemcachedSpec) {
	return func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = cachev1alpha1.Client(client) }
}

// podAt is a member's pod that was created when the specification had this port, as the cache keeps
// it.
func podAt(ordinal int32, port int32) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: PodName("cache", ordinal)}, Spec: *specAt(port)}
}

func specAt(port int32) *corev1.PodSpec {
	command := StatefulSet(clusterAt(port), Options{}, 3).Spec.Template.Spec.Containers[0].Command
	return &corev1.PodSpec{Containers: []corev1.Container{{Name: ContainerMemcached, Command: MemberArgs(command)}}}
}

func TestAMembersPortIsThatOfItsPodOrOfTheOneToCome(t *testing.T) {
	old, later := MemberPorts{11211, 11212}, MemberPorts{11400, 11401}
	for name, test := range map[string]struct {
		pods     []corev1.Pod
		template *corev1.PodSpec
		want     Ports
	}{
		"all have the port of the specification":       {[]corev1.Pod{podAt(0, 11300), podAt(1, 11300)}, specAt(11300), nil},
		"no member is there yet":                       {nil, nil, nil},
		"one is replaced, one was":                     {[]corev1.Pod{podAt(0, 11211), podAt(1, 11300)}, specAt(11300), Ports{0: old}},
		"one has no pod at the moment":                 {[]corev1.Pod{podAt(0, 11211)}, specAt(11300), Ports{0: old}},
		"one has no pod, and its template has to come": {[]corev1.Pod{podAt(0, 11300)}, specAt(11211), Ports{1: old}},
		"ports of two changes":                         {[]corev1.Pod{podAt(0, 11211), podAt(1, 11400)}, specAt(11300), Ports{0: old, 1: later}},
		"a member that leaves":                         {[]corev1.Pod{podAt(7, 11211)}, specAt(11300), Ports{7: old}},
		"a command of another form":                    {[]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "cache-0"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: ContainerMemcached, Command: []string{"sh"}}}}}}, specAt(11300), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, PortsOf(clusterAt(11300), 2, test.pods, test.template)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mixed: the specification has port 11300, and member 0 still listens at 11211.
var mixed = Ports{0: {11211, 11212}}

func TestDrainersAndRoutersDialEachMemberAtItsOwnPort(t *testing.T) {
	c := clusterAt(11300, calledBy("gomemcache"))
	want := []string{"cache-0.cache.shop.svc:11300=cache-0.cache.shop.svc:11211", "cache-1.cache.shop.svc:11300"}
	if diff := cmp.Diff(want, RouterTable(c, mixed, contract.RingStable, 2, 0, nil, 1).New.Servers); diff != "" {
		t.Errorf("routers: %s", diff)
	}
	drain := DrainJob(c, Options{}, mixed, "data-cache-2", "uid", 2, false).Spec.Template.Spec.Containers[0].Command
	place := MoveJob(c, Options{}, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 2, Ports: mixed}).Spec.Template.Spec.Containers[0].Command
	for what, command := range map[string][]string{"drain": drain, "move": place} {
		for _, server := range want {
			if line := strings.Join(command, " "); !strings.Contains(line, server) {
				t.Errorf("%s of %s: %s", what, server, line)
			}
		}
	}
	for _, flag := range []string{"--source=cache-0.cache.shop.svc:11211", "--export-port=11212"} {
		if line := strings.Join(place, " "); !strings.Contains(line, flag) {
			t.Errorf("move: no %s in %s", flag, line)
		}
	}
}

// A member that is dialled at another port makes no other ring: no library may look for its keys
// elsewhere.
func TestAnotherPortToDialMovesNoKey(t *testing.T) {
	for _, client := range routing.Clients() {
		for _, serverName := range []string{"", "shard-{ordinal}", "cache-{ordinal}.cache:11211"} {
			c := clusterAt(11300, calledBy(client), func(s *cachev1alpha1.MemcachedSpec) { s.Routing.ServerName = serverName })
			var owners []routing.Owner
			for _, ports := range []Ports{nil, mixed} {
				var servers []routing.Server
				for _, text := range namedServers(c, ports, RingOf(c, 3)) {
					s, err := routing.ParseServer(text)
					if err != nil {
						t.Fatal(err)
					}
					servers = append(servers, s)
				}
				owner, err := routing.New(client, servers)
				if err != nil {
					t.Fatal(err)
				}
				owners = append(owners, owner)
			}
			for i := range 2000 {
				if key := fmt.Appendf(nil, "user:%d", i); owners[0].Owner(key) != owners[1].Owner(key) {
					t.Errorf("%s, servers called %q: key %s has another owner", client, serverName, key)
					break
				}
			}
		}
	}
}

// Clients of a library that hashes ports get one port, because a list with two ports would be
// another ring, which no move follows.
func TestClientsAreToldEachMembersOwnPortIfThatMovesNoKey(t *testing.T) {
	own, one := []string{"cache-0.cache.shop.svc:11211", "cache-1.cache.shop.svc:11300"}, []string{"cache-0.cache.shop.svc:11300", "cache-1.cache.shop.svc:11300"}
	hash := []string{"dalli", "pymemcache", "pymemcache-bytes", "spymemcached-ketama", "libmemcached-ketama", "libmemcached-ketama-weighted", "spymemcached-ketama-names", "twemproxy"}
	endpoints := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}}
	for _, client := range routing.Clients() {
		c, want := clusterAt(11300, calledBy(client)), own
		for _, h := range hash {
			if h == client {
				want = one
			}
		}
		if diff := cmp.Diff(want, Servers(c, mixed, 2)); diff != "" {
			t.Errorf("%s: %s", client, diff)
		}
		var told []string
		for _, n := range TheList(c, mixed, 1, endpoints).Nodes {
			told = append(told, fmt.Sprintf("%s:%d", n.Host, n.Port))
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s, discovery: %s", client, diff)
		}
	}
	stable := clusterAt(11300, calledBy("gomemcache"), func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Addresses = cachev1alpha1.AddressesStable })
	if diff := cmp.Diff([]string{"cache-member-0.shop.svc:11300"}, Servers(stable, mixed, 1)); diff != "" {
		t.Errorf("a Service leads to the pod's own port: %s", diff)
	}
	service := MemberService(stable, mixed, 0, "").Spec.Ports
	if *service[0].Port != 11300 || service[0].TargetPort.StrVal != portName || *service[1].Port != 11301 || service[1].TargetPort.IntVal != 11212 {
		t.Errorf("the Service has %v and %v", service[0], service[1])
	}
}

func TestTheSliceHasThePortOfMost(t *testing.T) {
	c := clusterAt(11300, calledBy("gomemcache"))
	three := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}, {"cache-2", "10.0.0.3"}}
	seen := map[ListPorts]bool{}
	for name, test := range map[string]struct {
		ports     Ports
		port      int32
		of        []Endpoint
		different bool
	}{
		"all have the new one": {nil, 11300, three, false},
		"all have the old one": {Ports{0: {11211, 1}, 1: {11211, 1}, 2: {11211, 1}}, 11211, three, false},
		"most have the old":    {Ports{0: {11211, 1}, 1: {11211, 1}}, 11211, three, true},
		"most have the new":    {mixed, 11300, three, true},
		"one of two":           {mixed, 11211, three[:2], true},
		"none":                 {nil, 11300, nil, false},
	} {
		got := ListPortsOf(c, test.ports, test.of)
		if got.Port != test.port || (got.Others != "") != test.different {
			t.Errorf("%s: %+v", name, got)
		}
		if seen[got] && len(test.of) > 0 {
			t.Errorf("%s: %+v is that of another list", name, got)
		}
		seen[got] = len(test.of) > 0
	}
}

// TestATableIsOfItsRingWhereverItsMembersAreDialled: replacing members changes no ring.
func TestATableIsOfItsRingWhereverItsMembersAreDialled(t *testing.T) {
	for _, client := range []string{"gomemcache", "pymemcache", "twemproxy"} {
		for _, serverName := range []string{"", "shard-{ordinal}"} {
			c := clusterAt(11300, calledBy(client), func(s *cachev1alpha1.MemcachedSpec) { s.Routing.ServerName = serverName })
			told := RouterTable(c, mixed, contract.RingStable, 3, 0, nil, 1)
			if got := RouterRing(c, &told.New, ring.Ring{}, RingOf(c, 3)); got != RingOf(c, 3) {
				t.Errorf("%s: the ring is %v", client, got)
			}
			prepare := RouterTable(c, mixed, contract.RingPrepare, 2, 0, told, 2)
			settle := RouterTable(c, nil, contract.RingSettle, 2, 0, prepare, 3)
			want := RouterTable(c, nil, contract.RingStable, 3, 0, nil, 1).New
			if got := RouterRing(c, settle.Old, RingOf(c, 3)); got != RingOf(c, 3) {
				t.Errorf("%s: the earlier ring is %v", client, got)
			}
			for i, text := range settle.Old.Servers {
				s, _ := routing.ParseServer(text)
				if w, _ := routing.ParseServer(want.Servers[i]); s.Address() != w.Address() {
					t.Errorf("%s: member %d is dialled at %s when it was replaced", client, i, s.Address())
				}
			}
		}
	}
}

func TestAJobTellsWhereItsMembersListened(t *testing.T) {
	c := clusterAt(11300)
	marks := map[string]bool{}
	for _, ports := range []Ports{nil, mixed, {0: {11400, 11401}}} {
		for _, job := range []string{
			DrainJob(c, Options{}, ports, "data-cache-2", "uid", 2, false).Annotations[cachev1alpha1.AnnotationPorts],
			MoveJob(c, Options{}, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 2, Ports: ports}).Annotations[cachev1alpha1.AnnotationPorts],
		} {
			if job == "" || job != ports.Mark(c) {
				t.Errorf("%v: %q, not %q", ports, job, ports.Mark(c))
			}
		}
		marks[ports.Mark(c)] = true
	}
	if len(marks) != 3 {
		t.Errorf("marks %v", marks)
	}
}
