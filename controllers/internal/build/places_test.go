package build

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// A pod of a Deployment keeps its place until it ends; a ready pod without one gets the place of a pod that ends.
func TestAPlaceStaysAndItsPodMayChange(t *testing.T) {
	pod := func(name, address string, age int, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{}
		p.Name, p.Status.PodIP = "cache-5d9f8-"+name, address
		p.CreationTimestamp = metav1.NewTime(time.Unix(1000-int64(age), 0))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(&p)
		}
		return p
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	leaves := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)} }
	evicted := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	a, b, c, d := pod("a", "10.0.0.1", 9, nil), pod("b", "10.0.0.2", 8, nil), pod("c", "10.0.0.3", 7, nil), pod("d", "10.0.0.4", 1, nil)
	with := func(p corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
		return pod(p.Name[len("cache-5d9f8-"):], p.Status.PodIP, int(1000-p.CreationTimestamp.Unix()), change)
	}
	is := func(addresses ...string) (list []Endpoint) {
		for i, address := range addresses {
			list = append(list, Endpoint{PodName("cache", int32(i)), address})
		}
		return list
	}
	three := is("10.0.0.1", "10.0.0.2", "10.0.0.3")
	for name, test := range map[string]struct {
		n            int32
		pods         []corev1.Pod
		before, want []Endpoint
	}{
		"a new list has the oldest first":              {3, []corev1.Pod{c, b, a}, nil, three},
		"a pod that is not ready gets no place":        {3, []corev1.Pod{a, b, with(c, unready)}, nil, three[:2]},
		"a pod that is not ready any more keeps its":   {3, []corev1.Pod{with(a, unready), b, c, d}, three, three},
		"places don't follow the pods' ages":           {2, []corev1.Pod{a, b}, is("10.0.0.2", "10.0.0.1"), is("10.0.0.2", "10.0.0.1")},
		"a pod is gone, and nothing has replaced it":   {3, []corev1.Pod{a, c}, three, three},
		"a pod is gone, and its successor isn't ready": {3, []corev1.Pod{a, c, with(d, unready)}, three, three},
		"a pod is gone, and has a successor":           {3, []corev1.Pod{a, c, d}, three, is("10.0.0.1", "10.0.0.4", "10.0.0.3")},
		"a pod is being deleted":                       {3, []corev1.Pod{a, with(b, leaves), c, d}, three, is("10.0.0.1", "10.0.0.4", "10.0.0.3")},
		"a pod was evicted":                            {3, []corev1.Pod{a, with(b, evicted), c, d}, three, is("10.0.0.1", "10.0.0.4", "10.0.0.3")},
		"a roll-out's pod waits":                       {3, []corev1.Pod{a, b, c, d}, three, three},
		"fewer places":                                 {2, []corev1.Pod{a, b, c}, three, three[:2]},
		"fewer places, and the first pod goes":         {2, []corev1.Pod{with(a, leaves), b, c}, three, is("10.0.0.3", "10.0.0.2")},
		"more places":                                  {4, []corev1.Pod{a, b, c, d}, three, append(is("10.0.0.1", "10.0.0.2", "10.0.0.3"), Endpoint{"cache-3", "10.0.0.4"})},
		"a pod that has two places":                    {2, []corev1.Pod{a, b}, is("10.0.0.1", "10.0.0.1"), is("10.0.0.1", "10.0.0.2")},
		"a stranger's entry in the slice":              {1, []corev1.Pod{a}, []Endpoint{{"evil", "10.0.0.1"}}, three[:1]},
		"no places":                                    {0, []corev1.Pod{a}, three, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Endpoints(apitest.MakeMemcached("cache").Defaulted().Obj(), test.n, test.pods, test.before)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
