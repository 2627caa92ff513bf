package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// memberPods returns pods with these addresses, in any order.
func memberPods(addresses map[string]string) []corev1.Pod {
	var pods []corev1.Pod
	for name, address := range addresses {
		pod := corev1.Pod{}
		pod.Name, pod.Status.PodIP = name, address
		pods = append(pods, pod)
	}
	return pods
}

func TestEndpointsAreTheListInItsOrder(t *testing.T) {
	eleven := map[string]string{}
	var inOrder []Endpoint
	for _, name := range strings.Fields("cache-0 cache-1 cache-2 cache-3 cache-4 cache-5 cache-6 cache-7 cache-8 cache-9 cache-10") {
		address := "10.0.0." + strings.TrimPrefix(name, "cache-")
		eleven[name], inOrder = address, append(inOrder, Endpoint{name, address})
	}
	two := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}}
	for name, test := range map[string]struct {
		n      int32
		pods   map[string]string
		before []Endpoint
		want   []Endpoint
	}{
		"by their numbers":                {11, eleven, nil, inOrder},
		"none":                            {0, eleven, inOrder, nil},
		"a member that leaves is off it":  {2, map[string]string{"cache-0": "10.0.0.1", "cache-1": "10.0.0.2", "cache-2": "10.0.0.3"}, nil, two},
		"one has another address":         {2, map[string]string{"cache-0": "10.0.0.1", "cache-1": "10.0.0.9"}, two, []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.9"}}},
		"one has no pod":                  {2, map[string]string{"cache-1": "10.0.0.2"}, two, two},
		"one's pod has no address yet":    {2, map[string]string{"cache-0": "", "cache-1": "10.0.0.2"}, two, two},
		"one never had an address":        {2, map[string]string{"cache-1": "10.0.0.2"}, nil, two[1:]},
		"IPv6":                            {1, map[string]string{"cache-0": "fd00::1"}, nil, []Endpoint{{"cache-0", "fd00::1"}}},
		"all have moved to IPv6":          {2, map[string]string{"cache-0": "fd00::1", "cache-1": "fd00::2"}, two, []Endpoint{{"cache-0", "fd00::1"}, {"cache-1", "fd00::2"}}},
		"one of another family":           {2, map[string]string{"cache-0": "10.0.0.1", "cache-1": "fd00::2"}, nil, two[:1]},
		"an address that no slice takes":  {2, map[string]string{"cache-0": "127.0.0.1", "cache-1": "10.0.0.2"}, two, two},
		"no address at all":               {2, map[string]string{"cache-0": "x", "cache-1": "::ffff:10.0.0.3"}, two, two},
		"a pod that is not on the list":   {1, map[string]string{"cache-0": "10.0.0.1", "other-1": "10.0.0.2"}, nil, two[:1]},
		"a stranger's entry in the slice": {1, map[string]string{"cache-0": "10.0.0.1"}, []Endpoint{{"evil", "10.6.6.6"}}, two[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Endpoints(withStorage().Defaulted().Obj(), test.n, memberPods(test.pods), test.before)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestListSliceIsReadAsItWasWritten(t *testing.T) {
	c := withStorage().Defaulted().Obj()
	want := []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "10.0.0.2"}}
	slice := convert[discoveryv1.EndpointSlice](ListSlice(c, ListPorts{Port: 11211}, want, AddressType(want), 1, true))
	if diff := cmp.Diff(want, EndpointsOf(slice)); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 || slice.Labels[discoveryv1.LabelServiceName] != *ListService(c).Name {
		t.Errorf("%s slice of Service %s", slice.AddressType, slice.Labels[discoveryv1.LabelServiceName])
	}
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready == nil || !*e.Conditions.Ready {
			t.Errorf("DNS doesn't name %s", *e.Hostname)
		}
	}
	if got := EndpointsOf(nil); got != nil {
		t.Errorf("%v of no slice", got)
	}
}

func TestNameOfTheListIsAServices(t *testing.T) {
	if errs := validation.IsDNS1035Label(ListName(strings.Repeat("n", 52))); len(errs) > 0 {
		t.Error(errs)
	}
}
