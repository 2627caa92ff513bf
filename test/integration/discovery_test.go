package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

func discovers(s *cachev1alpha1.MemcachedSpec) { s.Discovery = &cachev1alpha1.DiscoverySpec{} }

func (w *world) discoveryService() *corev1.Service {
	s := &corev1.Service{}
	return found(w, s, admin.Get(w.Context(), w.key(name+"-discovery"), s))
}

// told returns the list that the first members were told, if all were told the same, with exactly the first
// listed members on it, at their pods' addresses.
func (w *world) told(members, listed int) (*contract.List, error) {
	var first *contract.List
	for i := range members {
		pod := w.pod(fmt.Sprintf("%s-%d", name, i))
		if pod == nil {
			return nil, fmt.Errorf("no member %d", i)
		}
		list, err := toldBy(pod)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pod.Name, err)
		}
		if first == nil {
			first = list
		}
		if list.String() != first.String() || len(list.Nodes) != listed {
			return nil, fmt.Errorf("%s was told %s, member 0 %s", pod.Name, list, first)
		}
	}
	for i, n := range first.Nodes {
		pod := w.pod(fmt.Sprintf("%s-%d", name, i))
		if pod == nil || n.IP != pod.Status.PodIP || n.Host != fmt.Sprintf("%s.%s.%s.svc", pod.Name, name, w.namespace) || n.Port != 11211 {
			return nil, fmt.Errorf("server %d is %v", i, n)
		}
	}
	return first, nil
}

func toldBy(pod *corev1.Pod) (*contract.List, error) {
	if pod == nil {
		return nil, errors.New("there is no pod")
	}
	return contract.ParseList(pod.Annotations[cachev1alpha1.AnnotationList])
}

// toldAll waits for that list, and returns its version.
func (w *world) toldAll(members, listed int) int64 {
	w.Helper()
	var list *contract.List
	w.eventually(fmt.Sprintf("%d members told of %d", members, listed), func() (err error) {
		list, err = w.told(members, listed)
		return err
	})
	return list.Version
}

func TestMembersAreToldOfTheListBeforeAnyOfThemLeaves(t *testing.T) {
	tier.Second(t, "TestListLosesMembersBeforeTheyLeave")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(discovers), 3)
	s := w.discoveryService()
	if s == nil || s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.Ports[0].Port != 11211 || s.Spec.Ports[0].TargetPort.StrVal != "discovery" {
		t.Fatalf("the Service is %s", asJSON(s))
	}
	version, before := w.toldAll(3, 3), 3
	for _, size := range []int{5, 2, 3} {
		begin := len(w.journal.Writes())
		w.scale(int32(size))
		w.settled(int32(size))
		next := w.toldAll(size, size)
		if next <= version {
			t.Errorf("version %d after %d", next, version)
		}
		version = next
		if size == 2 {
			w.before("patch pods cache-0", "patch statefulsets cache", begin)
			w.before("patch endpointslices cache-list", "patch pods cache-0", begin)
		}
		// A member that joins is told of the list before it is on the list. Then the movers, one for each of
		// the other members, are told to begin.
		movers := 0
		if size > before {
			movers = before
		}
		if told, most := w.writesOf("pods", begin), max(size, before)+max(0, size-before)+movers; told > most {
			t.Errorf("%d writes to pods at size %d, want %d at most", told, size, most)
		}
		before = size
	}
	pod := w.pod("cache-1")
	w.delete(pod)
	w.eventually("another pod", func() error {
		if p := w.pod(pod.Name); p == nil || p.UID == pod.UID || p.Status.PodIP == "" {
			return errors.New("not yet")
		}
		return nil
	})
	if next := w.toldAll(3, 3); next <= version {
		t.Errorf("version %d after %d, with another address", next, version)
	}
	w.settled(3)
}

// The version goes on growing, even if another client has deleted the slice.
func TestVersionOfTheListGrowsOnly(t *testing.T) {
	tier.Second(t, "TestVersionsOfListsOnlyGrow")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(discovers), 2)
	version := w.toldAll(2, 2)
	for what, spoil := range map[string]func(){
		"deleted": func() { w.delete(w.slice()) },
		"far ahead": func() {
			w.change(w.slice(), fmt.Sprintf(`{"metadata":{"annotations":{%q:"9223372036854775807"}}}`, cachev1alpha1.AnnotationListVersion))
		},
		"none": func() {
			w.change(w.slice(), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cachev1alpha1.AnnotationListVersion))
		},
	} {
		spoil()
		w.eventually("a later version after "+what, func() error {
			list, err := w.told(2, 2)
			if err == nil && list.Version <= version {
				err = fmt.Errorf("version %d after %d", list.Version, version)
			}
			if err == nil {
				version = list.Version
			}
			return err
		})
	}
}

func TestDiscoveryComesAndGoesOnRequest(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	serves := func(want bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("pods with discovery: %v", want), func() error {
			for _, p := range w.pods() {
				if is := strings.Contains(strings.Join(p.Spec.Containers[0].Command, " "), "--discovery=:11212"); is != want {
					return fmt.Errorf("%s: %v", p.Name, p.Spec.Containers[0].Command)
				}
			}
			if (w.discoveryService() != nil) != want {
				return errors.New("the Service")
			}
			return nil
		})
		w.settled(2)
	}
	serves(false)
	equal(w, "writes to pods", w.writesOf("pods", 0), 0)
	w.change(w.memcached(), `{"spec":{"discovery":{}}}`)
	serves(true)
	w.toldAll(2, 2)
	w.change(w.memcached(), `{"spec":{"discovery":null}}`)
	serves(false)
}

func TestDiscoveryServiceOfAnotherOwnerHoldsUpNoMember(t *testing.T) {
	tier.Second(t, "TestForeignObjectOfTheSameNameIsLeftAlone")
	w := newWorld(t)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-discovery"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.create(foreign)
	w.create(apitest.MakeMemcached(name).With(discovers).Size(2).Storage("128Mi").Obj())
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	w.toldAll(2, 2)
	w.delete(foreign)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
}
