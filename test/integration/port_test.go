package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// listensAt returns nil if that member's pod exists, and its memcached listens at that port.
func (w *world) listensAt(member int, port int32) error {
	pod := w.pod(fmt.Sprintf("%s-%d", name, member))
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.PodIP == "" || pod.Spec.Containers[0].Ports[0].ContainerPort != port {
		return fmt.Errorf("member %d is %s", member, asJSON(pod))
	}
	return nil
}

// published returns nil if clients and routers are told that the members listen at these ports.
func (w *world) published(ports ...int) error {
	var servers, discovered, routed []string
	for i, port := range ports {
		servers = append(servers, fmt.Sprintf("cache-%d.cache.%s.svc:%d", i, w.namespace, port))
	}
	if got := w.listed(); !slices.Equal(got, servers) {
		return fmt.Errorf("the list is %v, want %v", got, servers)
	}
	if got := w.memcached().Status.Servers; !slices.Equal(got, servers) {
		return fmt.Errorf("status.servers is %v, want %v", got, servers)
	}
	list, err := toldBy(w.pod("cache-0"))
	if err != nil {
		return err
	}
	for _, n := range list.Nodes {
		discovered = append(discovered, fmt.Sprintf("%s:%d", n.Host, n.Port))
	}
	if !slices.Equal(discovered, servers) {
		return fmt.Errorf("members tell %v, want %v", discovered, servers)
	}
	table, err := w.table()
	if err != nil {
		return err
	}
	for _, s := range table.New.Servers {
		routed = append(routed, s[strings.Index(s, "=")+1:])
	}
	if !slices.Equal(routed, servers) {
		return fmt.Errorf("routers dial %v, want %v", routed, servers)
	}
	return nil
}

func sliceAt(s *discoveryv1.EndpointSlice, port int32) error {
	if s == nil || *s.Ports[0].Port != port {
		return fmt.Errorf("the slice is %s, want port %d", asJSON(s), port)
	}
	return nil
}

// TestEachMemberIsPublishedWithItsOwnPort while members are replaced one by one for a new port.
func TestEachMemberIsPublishedWithItsOwnPort(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(discovers).With(routed).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing.Client, s.NetworkPolicy = "gomemcache", &cachev1alpha1.NetworkPolicySpec{}
	}), 3)
	w.toldAll(3, 3)
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"containerPort":11300}}`)
	w.eventually("member 2 is replaced, and the others wait for it", func() error {
		return errors.Join(w.listensAt(0, 11211), w.listensAt(1, 11211), w.listensAt(2, 11300))
	})
	w.eventually("its port is published, and those that the others have", func() error {
		return errors.Join(w.published(11211, 11211, 11300), sliceAt(w.slice(), 11211))
	})
	w.eventually("moves reach the supervisors of both", func() error { return w.supervisorsReached(11213, 11301) })
	kubes.Unready(w.namespace, false)
	w.eventually("all have the new port", func() error {
		return errors.Join(w.listensAt(0, 11300), w.listensAt(1, 11300), w.listensAt(2, 11300), w.published(11300, 11300, 11300), sliceAt(w.slice(), 11300))
	})
	w.eventually("moves reach the supervisors at one port", func() error { return w.supervisorsReached(11301) })
	w.settled(3)
	w.quiet()
}

// TestTheListOfALibraryThatHashesPortsHasOnePort also shows that routers reach each member at its own port.
// With two ports in the list, clients would look for keys by a ring by which nothing is moved.
func TestTheListOfALibraryThatHashesPortsHasOnePort(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(routed).With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Client = "pymemcache" }), 3)
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"containerPort":11300}}`)
	w.eventually("member 2 is replaced", func() error { return errors.Join(w.listensAt(1, 11211), w.listensAt(2, 11300)) })
	w.eventually("routers dial each member at its own port, and call it by the ring's", func() error {
		table, err := w.table()
		if err != nil {
			return err
		}
		host := func(i int) string { return fmt.Sprintf("cache-%d.cache.%s.svc", i, w.namespace) }
		want := []string{host(0) + ":11300=" + host(0) + ":11211", host(1) + ":11300=" + host(1) + ":11211", host(2) + ":11300"}
		if !slices.Equal(table.New.Servers, want) {
			return fmt.Errorf("the table has %v, want %v", table.New.Servers, want)
		}
		return nil
	})
	for i, s := range w.listed() {
		if !strings.HasSuffix(s, ":11300") {
			t.Errorf("server %d is %s", i, s)
		}
	}
	kubes.Unready(w.namespace, false)
	w.settled(3)
}

// supervisorsReached returns nil if the NetworkPolicy lets moves reach supervisors at these ports, by number.
func (w *world) supervisorsReached(want ...int32) error {
	policy := w.networkPolicy()
	if policy == nil {
		return errors.New("there is no NetworkPolicy")
	}
	var got []int32
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			if p.Port.IntVal != 0 {
				got = append(got, p.Port.IntVal)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the NetworkPolicy has %v, want %v", got, want)
	}
	return nil
}

// TestADrainStartsAnewForAMemberThatListensElsewhere because the drain's Job has the members' ports, and would
// wait for the old port.
func TestADrainStartsAnewForAMemberThatListensElsewhere(t *testing.T) {
	tier.Second(t, "TestAJobWhoseMembersListenElsewhereIsReplaced")
	w := newWorld(t)
	w.storageCluster(routedBy("dskit"), 3)
	kubes.Play(w.namespace, player.Hang)
	w.scale(2)
	dials := func(ports ...int) func() error {
		return func() error {
			jobs := w.jobs()
			if len(jobs) != 1 || jobs[0].DeletionTimestamp != nil {
				return fmt.Errorf("%d Jobs", len(jobs))
			}
			command := strings.Join(jobs[0].Spec.Template.Spec.Containers[0].Command, " ") + " "
			for i, port := range ports {
				if !strings.Contains(command, fmt.Sprintf("cache-%d.cache.%s.svc:%d ", i, w.namespace, port)) {
					return fmt.Errorf("want member %d at %d: %s", i, port, command)
				}
			}
			return nil
		}
	}
	w.eventually("member 2 is drained", dials(11211, 11211))
	kubes.Unready(w.namespace, true)
	w.change(w.memcached(), `{"spec":{"containerPort":11300}}`)
	w.eventually("it is drained to member 1, which was replaced, too", dials(11211, 11300))
	kubes.Unready(w.namespace, false)
	w.eventually("it is drained to both at their new port", dials(11300, 11300))
	kubes.Play(w.namespace, player.Succeed(100))
	w.settled(2)
}
