package integration

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
)

func stably(s *cachev1alpha1.MemcachedSpec) {
	s.Routing.Addresses, s.Routing.Client = cachev1alpha1.AddressesStable, "evcache"
	s.Discovery = &cachev1alpha1.DiscoverySpec{}
}

func (w *world) memberService(ordinal int) *corev1.Service {
	s := &corev1.Service{}
	return found(w, s, admin.Get(w.Context(), w.key(fmt.Sprintf("%s-member-%d", name, ordinal)), s))
}

// addressesStay waits until clients are told of exactly the members' addresses, in each way, and returns the
// addresses.
func (w *world) addressesStay(members int) []string {
	w.Helper()
	var addresses []string
	w.eventually(fmt.Sprintf("%d members at addresses that stay", members), func() error {
		addresses = nil
		slice, listed := w.slice(), w.listed()
		if slice == nil || len(slice.Endpoints) != members || len(listed) != members {
			return fmt.Errorf("the list is %v, the slice %s", listed, asJSON(slice))
		}
		for i := range members {
			s := w.memberService(i)
			if s == nil {
				return fmt.Errorf("member %d has no Service", i)
			}
			ip, err := netip.ParseAddr(s.Spec.ClusterIP)
			host := fmt.Sprintf("%s.%s.svc", s.Name, w.namespace)
			if err != nil || slice.Endpoints[i].Addresses[0] != ip.String() || listed[i] != host+":11211" {
				return fmt.Errorf("member %d is at %s: %v; %s", i, ip, listed, asJSON(slice.Endpoints))
			}
			list, err := toldBy(w.pod(fmt.Sprintf("%s-%d", name, i)))
			if err != nil || len(list.Nodes) != members || list.Nodes[i].Host != host || list.Nodes[i].IP != ip.String() {
				return fmt.Errorf("member %d tells %v: %w", i, list, err)
			}
			if _, marked := s.Annotations[cachev1alpha1.AnnotationUnlisted]; marked {
				return fmt.Errorf("%s is to go", s.Name)
			}
			addresses = append(addresses, ip.String())
		}
		return nil
	})
	return addresses
}

func TestAddressesStayOverRestartsAndScalings(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(stably), 2)
	first := w.addressesStay(2)
	w.noAdvice()
	pod := w.pod("cache-0")
	w.delete(pod)
	w.eventually("another pod", func() error {
		if p := w.pod(pod.Name); p == nil || p.UID == pod.UID || p.Status.PodIP == "" {
			return errors.New("not yet")
		}
		return nil
	})
	w.settled(2)
	equal(w, "the addresses after a restart", w.addressesStay(2), first)

	w.scale(1)
	w.settled(1)
	equal(w, "the addresses of those that stay", w.addressesStay(1), first[:1])
	lingers := w.memberService(1)
	since, err := time.Parse(time.RFC3339, lingers.Annotations[cachev1alpha1.AnnotationUnlisted])
	if err != nil || lingers.Spec.ClusterIP != first[1] {
		t.Fatalf("%v: the Service of the member that left is %s", err, asJSON(lingers))
	}
	begin := len(w.journal.Writes())
	w.restartOperator()
	w.settled(1)
	equal(w, "writes of Services at rest", w.writesOf("services", begin), 0)
	w.scale(2)
	w.settled(2)
	equal(w, "the addresses when it is back in time", w.addressesStay(2), first)

	w.scale(1)
	w.settled(1)
	w.change(w.memberService(1), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationUnlisted, since.Add(-10*time.Minute).Format(time.RFC3339)))
	w.eventually("the Service is gone", func() error {
		if s := w.memberService(1); s != nil {
			return fmt.Errorf("it is %s", asJSON(s))
		}
		return nil
	})

	w.scale(0)
	w.settled(0)
	w.always("the addresses of a hibernated cluster", func() error {
		for i := range 1 {
			if s := w.memberService(i); s == nil || s.Spec.ClusterIP != first[i] || s.Annotations[cachev1alpha1.AnnotationUnlisted] != "" {
				return fmt.Errorf("member %d is at %s", i, asJSON(s))
			}
		}
		return nil
	})
	w.scale(1)
	w.settled(1)
	equal(w, "the addresses after hibernation", w.addressesStay(1), first[:1])
}

func TestAddressesComeAndGoOnRequest(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(stably).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing.Addresses = cachev1alpha1.AddressesPod
	}), 2)
	w.advised(cachev1alpha1.ReasonAddressesHashed)
	w.toldAll(2, 2)
	w.change(w.memcached(), `{"spec":{"routing":{"addresses":"Stable"}}}`)
	w.addressesStay(2)
	w.noAdvice()
	w.settled(2) // another address is another ring, so their items are moved
	w.change(w.memcached(), `{"spec":{"routing":{"addresses":"Pod"}}}`)
	w.toldAll(2, 2)
	w.eventually("Services that are to go", func() error {
		for i := range 2 {
			if s := w.memberService(i); s == nil || s.Annotations[cachev1alpha1.AnnotationUnlisted] == "" {
				return fmt.Errorf("member %d has %s", i, asJSON(s))
			}
		}
		return nil
	})
	w.advised(cachev1alpha1.ReasonAddressesHashed)
}

// Otherwise clients would find another owner's pods at the member's name.
func TestMemberServiceOfAnotherOwnerKeepsTheMemberOffTheList(t *testing.T) {
	tier.Second(t, "TestForeignObjectOfTheSameNameIsLeftAlone")
	w := newWorld(t)
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-member-2"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.create(foreign)
	w.storageCluster(apitest.MakeMemcached(name).With(stably), 2)
	addresses := w.addressesStay(2)
	w.scale(3)
	if why := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken); !strings.Contains(why, foreign.Name) {
		t.Errorf("it says %q", why)
	}
	w.always("two members", func() error { return w.replicasAre(2) })
	equal(w, "the addresses", w.addressesStay(2), addresses)
	if s := w.memberService(2); s.UID != foreign.UID || s.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it was written: %s", asJSON(s))
	}
	w.delete(foreign)
	w.settled(3)
	w.addressesStay(3)
}
