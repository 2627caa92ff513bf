package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// dualPods returns pods with these addresses, the first of which is status.podIP.
func dualPods(addresses map[string][]string) []corev1.Pod {
	var pods []corev1.Pod
	for name, all := range addresses {
		pod := corev1.Pod{}
		pod.Name, pod.Status.PodIP = name, all[0]
		for _, ip := range all {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		pods = append(pods, pod)
	}
	return pods
}

// If nodes differ in which family comes first, each member is listed with an address of the list's
// family.
func TestTheListHasEachMemberInOneFamily(t *testing.T) {
	four := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}, {"cache-2", "10.0.0.3"}}
	six := []Endpoint{{"cache-0", "fd00::1"}, {"cache-1", "fd00::2"}, {"cache-2", "fd00::3"}}
	mixed := map[string][]string{"cache-0": {"fd00::1", "10.0.0.1"}, "cache-1": {"10.0.0.2", "fd00::2"}, "cache-2": {"10.0.0.3", "fd00::3"}}
	for name, test := range map[string]struct {
		pods    map[string][]string
		before  []Endpoint
		want    []Endpoint
		without []string
	}{
		"the first member's":                 {mixed, nil, six, nil},
		"the one that the list has":          {mixed, four, four, nil},
		"the one that all have":              {map[string][]string{"cache-0": {"fd00::1", "10.0.0.1"}, "cache-1": {"10.0.0.2"}, "cache-2": {"10.0.0.3", "fd00::3"}}, nil, four, nil},
		"the one that all have now":          {map[string][]string{"cache-0": {"fd00::1"}, "cache-1": {"fd00::2"}, "cache-2": {"10.0.0.3", "fd00::3"}}, four, six, nil},
		"a member without a pod counts, too": {map[string][]string{"cache-0": {"fd00::1", "10.0.0.1"}, "cache-2": {"fd00::3", "10.0.0.3"}}, four, four, nil},
		"the one that most have": {
			map[string][]string{"cache-0": {"10.0.0.1"}, "cache-1": {"fd00::2"}, "cache-2": {"fd00::3"}}, four, []Endpoint{six[1], six[2]}, []string{"cache-0"},
		},
		"the list's, where as many have either":  {map[string][]string{"cache-0": {"fd00::1"}, "cache-1": {"10.0.0.2"}}, four[:2], []Endpoint{four[1]}, []string{"cache-0"}},
		"no family is common, which status says": {map[string][]string{"cache-0": {"10.0.0.1"}, "cache-1": {"fd00::2"}, "cache-2": {"10.0.0.3"}}, nil, []Endpoint{four[0], four[2]}, []string{"cache-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods := dualPods(test.pods)
			if diff := cmp.Diff(test.want, Endpoints(withStorage().Defaulted().Obj(), 3, pods, test.before)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.without, LeftOut(withStorage().Defaulted().Obj(), 3, pods, test.want)); diff != "" {
				t.Errorf("without an address: -want +got:\n%s", diff)
			}
		})
	}
}

func TestServicesOfTwoFamiliesAreListedInOne(t *testing.T) {
	service := func(ips ...string) corev1.Service {
		return corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ips[0], ClusterIPs: ips}}
	}
	services := map[int32]corev1.Service{0: service("fd00::1", "10.0.0.1"), 1: service("10.0.0.2")}
	want := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}}
	if diff := cmp.Diff(want, StableEndpoints("cache", 2, services, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	services[0] = service("fd00::1")
	if diff := cmp.Diff(want, StableEndpoints("cache", 2, services, want)); diff != "" {
		t.Errorf("a list that would be shorter: -want +got:\n%s", diff)
	}
}
