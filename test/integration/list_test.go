package integration

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
	"example.com/memcached-operator/test/wait"
)

const listName = name + "-list"

func (w *world) slice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{}
	return found(w, s, admin.Get(w.Context(), w.key(listName), s))
}

// sliceHas returns nil if the slice has exactly these members, at their pods' addresses.
func (w *world) sliceHas(members int) error {
	s := w.slice()
	if s == nil || len(s.Endpoints) != members {
		return fmt.Errorf("the slice is %s", asJSON(s))
	}
	for i := range s.Endpoints {
		e, pod := &s.Endpoints[i], w.pod(fmt.Sprintf("%s-%d", name, i))
		if pod == nil || *e.Hostname != pod.Name || !slices.Equal(e.Addresses, []string{pod.Status.PodIP}) {
			return fmt.Errorf("endpoint %d is %s", i, asJSON(e))
		}
	}
	return nil
}

// writesOf counts the writes of a resource.
func (w *world) writesOf(resource string, from int) int {
	n := 0
	for _, write := range w.journal.Writes()[from:] {
		if write.Resource == resource {
			n++
		}
	}
	return n
}

// nameServer is a real CoreDNS.
type nameServer struct{ address string }

func (w *world) startDNS() *nameServer {
	w.Helper()
	// The port must be free for both TCP and UDP.
	var address string
	w.eventually("a free port", func() error {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = tcp.Close() }()
		address = tcp.Addr().String()
		udp, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		return udp.Close()
	})
	cmd, err := plane.DNS(w.Context(), w.TempDir(), address)
	if err != nil {
		w.Fatal(err)
	}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("CoreDNS:\n%s", output.String())
		}
	})
	return &nameServer{address}
}

// ask asks a question, and returns the answers in their order.
func (d *nameServer) ask(name string, kind dnsmessage.Type) ([]dnsmessage.Resource, error) {
	conn, err := net.Dial("tcp", d.address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(wait.Deadline())
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := q.Pack()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)); err != nil {
		return nil, err
	}
	answer := make([]byte, 64<<10)
	n := 0
	for n < 2 || n < 2+int(answer[0])<<8+int(answer[1]) {
		got, err := conn.Read(answer[n:])
		if err != nil {
			return nil, err
		}
		n += got
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer[2:n]); err != nil {
		return nil, err
	}
	return m.Answers, nil
}

// names returns nil if the SRV records are exactly those members, in their order, each of their names has its
// pod's address, and the A records are these addresses in the same order.
func (d *nameServer) names(w *world, members int) error {
	domain := fmt.Sprintf("%s.%s.svc.cluster.local.", listName, w.namespace)
	records, err := d.ask("_memcached._tcp."+domain, dnsmessage.TypeSRV)
	if err != nil {
		return err
	}
	if len(records) != members {
		return fmt.Errorf("%d records: %v", len(records), records)
	}
	var pods []string
	for i := range records {
		srv, ok := records[i].Body.(*dnsmessage.SRVResource)
		want := fmt.Sprintf("%s-%d.%s", name, i, domain)
		if !ok || srv.Target.String() != want || srv.Port != 11211 {
			return fmt.Errorf("record %d is %v", i, records[i])
		}
		pod := w.pod(fmt.Sprintf("%s-%d", name, i))
		if pod == nil {
			return fmt.Errorf("no member %d", i)
		}
		if err := d.addressesAre(want, pod.Status.PodIP); err != nil {
			return err
		}
		pods = append(pods, pod.Status.PodIP)
	}
	return d.addressesAre(domain, pods...)
}

// addressesAre returns nil if the name has exactly these A records, in their order.
func (d *nameServer) addressesAre(name string, want ...string) error {
	records, err := d.ask(name, dnsmessage.TypeA)
	if err != nil {
		return err
	}
	var got []string
	for _, r := range records {
		if a, ok := r.Body.(*dnsmessage.AResource); ok {
			got = append(got, net.IP(a.A[:]).String())
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s has the addresses %v, and its pods %v", name, got, want)
	}
	return nil
}

func TestDNSHasExactlyTheClientsListInItsOrder(t *testing.T) {
	w := newWorld(t)
	first, sizes := 11, []int32{10} // cache-10 comes after cache-9
	if tier.All() {
		first, sizes = 3, []int32{12, 2, 3}
	}
	w.storageCluster(apitest.MakeMemcached(name), int32(first))
	dns := w.startDNS()
	w.eventually("the first in DNS", func() error { return dns.names(w, first) })
	equal(w, "the ConfigMap's list", w.listed(), w.ring(first))
	for _, size := range sizes {
		begin := len(w.journal.Writes())
		w.scale(size)
		w.settled(size)
		w.eventually(fmt.Sprintf("%d in DNS", size), func() error { return dns.names(w, int(size)) })
		equal(w, fmt.Sprintf("writes of the slice at %d", size), w.writesOf("endpointslices", begin), 1)
		if size == 2 || size == 10 {
			w.before("patch endpointslices cache-list", "patch statefulsets cache", begin)
		}
	}
	w.scale(0)
	w.settled(0)
	w.eventually("no member in DNS", func() error { return dns.names(w, 0) })
}

func TestDNSFollowsAMemberToItsNewAddress(t *testing.T) {
	tier.Second(t, "TestDNSHasExactlyTheClientsListInItsOrder")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.eventually("three endpoints", func() error { return w.sliceHas(3) })
	before := w.slice()
	kubes.Unready(w.namespace, true)
	pod := w.pod("cache-1")
	begin := len(w.journal.Writes())
	w.delete(pod)
	w.eventually("the new address", func() error {
		if p := w.pod(pod.Name); p == nil || p.UID == pod.UID {
			return errors.New("the old pod")
		}
		return w.sliceHas(3)
	})
	equal(w, "writes of the slice", w.writesOf("endpointslices", begin), 1)
	equal(w, "another member", w.slice().Endpoints[0], before.Endpoints[0])
	equal(w, "the list", w.listed(), w.ring(3))
	kubes.Unready(w.namespace, false)
	w.settled(3)
}

func TestListInDNSIsPutRight(t *testing.T) {
	tier.Second(t, "TestDNSHasExactlyTheClientsListInItsOrder")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	right := func() error { return w.sliceHas(2) }
	w.eventually("two endpoints", right)
	w.change(w.slice(), `{"endpoints":[{"addresses":["10.66.66.66"],"hostname":"evil"}]}`)
	w.eventually("the members again", right)
	w.change(w.slice(), fmt.Sprintf(`{"metadata":{"labels":{%q:"none",%q:"other"}}}`, discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName))
	w.eventually("the labels again", func() error {
		if s := w.slice(); s.Labels[discoveryv1.LabelManagedBy] != cachev1alpha1.ManagedBy || s.Labels[discoveryv1.LabelServiceName] != listName {
			return fmt.Errorf("%v", s.Labels)
		}
		return nil
	})
	w.delete(w.slice())
	w.eventually("the slice again", right)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: listName}}
	w.delete(service)
	w.eventually("the Service again", func() error { return admin.Get(w.Context(), w.key(listName), service) })
}

// A slice can't change the type of its addresses.
func TestListMovesToAnotherAddressFamily(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.eventually("two endpoints", func() error { return w.sliceHas(2) })
	w.stopOperator()
	old := w.slice()
	w.delete(old)
	six := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: listName, Labels: old.Labels, OwnerReferences: old.OwnerReferences},
		AddressType: discoveryv1.AddressTypeIPv6,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"fd00::1"}, Hostname: old.Endpoints[0].Hostname}},
	}
	w.create(six)
	w.startOperator()
	w.eventually("the members again", func() error { return w.sliceHas(2) })
	equal(w, "their type", w.slice().AddressType, discoveryv1.AddressTypeIPv4)
}

// takenName waits until status names one of these objects of other owners, and returns its name.
func (w *world) takenName(others map[string]client.Object) (named string) {
	w.Helper()
	w.eventually("status names an object with another owner", func() error {
		c := meta.FindStatusCondition(w.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		for named = range others {
			if c != nil && c.Reason == cachev1alpha1.ReasonNameTaken && strings.Contains(c.Message, named+" ") {
				return nil
			}
		}
		return fmt.Errorf("it is %s", asJSON(c))
	})
	return named
}

// Another owner's Service with the list's name stays unchanged, and gets no endpoints of the operator's.
// Clients are told the list by the ConfigMap, and by the members. Another owner's budget, or Service for
// discovery, holds up nothing either, and status names it, too.
func TestListServiceOfAnotherOwnerHoldsUpNoMember(t *testing.T) {
	tier.Second(t, "TestForeignObjectOfTheSameNameIsLeftAlone")
	w := newWorld(t)
	foreign := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, ClusterIP: corev1.ClusterIPNone}}
	foreign.Name = listName
	w.create(foreign)
	budget := w.anothersBudget()
	discovery := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name + "-discovery"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	w.create(discovery)
	w.create(apitest.MakeMemcached(name).With(discovers).Size(3).Storage("128Mi").Obj())
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	version := w.toldAll(3, 3)
	w.scale(2)
	w.eventually("two members", func() error { return w.replicasAre(2) })
	if next := w.toldAll(2, 2); next <= version {
		t.Errorf("version %d after %d", next, version)
	}
	equal(w, "the list in the ConfigMap", len(w.listed()), 2)
	if s := w.slice(); s == nil || s.Labels[discoveryv1.LabelServiceName] != "" {
		t.Errorf("the Service has endpoints: %s", asJSON(s))
	}
	w.delete(foreign)
	w.eventually("two endpoints of the Service", func() error {
		if s := w.slice(); s == nil || s.Labels[discoveryv1.LabelServiceName] != listName {
			return fmt.Errorf("the slice is %s", asJSON(s))
		}
		return w.sliceHas(2)
	})
	equal(w, "the budget's selector", w.budget().Spec.Selector.MatchLabels, map[string]string{"app": "another"})
	others := map[string]client.Object{"PodDisruptionBudget " + budget.Name: budget, "Service " + discovery.Name: discovery}
	for len(others) > 0 {
		named := w.takenName(others)
		w.delete(others[named])
		delete(others, named)
	}
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
	w.stopOperator()
	w.delete(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: listName}})
	foreign.ResourceVersion, foreign.UID = "", ""
	w.create(foreign)
	w.startOperator()
	w.eventually("no endpoints for another owner's Service", func() error {
		if s := w.slice(); s == nil || s.Labels[discoveryv1.LabelServiceName] != "" {
			return fmt.Errorf("the slice is %s", asJSON(s))
		}
		return nil
	})
}

// TestVersionsGrowAfterTheSliceIsGone because members ignore a smaller version.
func TestVersionsGrowAfterTheSliceIsGone(t *testing.T) {
	tier.Second(t, "TestVersionsOfListsOnlyGrow")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(discovers), 2)
	w.toldAll(2, 2)
	w.stopOperator()
	later := fmt.Sprint(int64(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))/time.Second) + 3600) // by another clock
	for i := range 2 {
		w.change(w.pod(fmt.Sprintf("%s-%d", name, i)), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationListVersion, later))
	}
	w.delete(w.slice())
	w.startOperator()
	w.eventually("a later version", func() error {
		if s := w.slice(); s == nil || len(s.Annotations[cachev1alpha1.AnnotationListVersion]) < len(later) || s.Annotations[cachev1alpha1.AnnotationListVersion] <= later {
			return fmt.Errorf("after %s the slice is %s", later, asJSON(s))
		}
		return w.sliceHas(2)
	})
	w.toldAll(2, 2)
}

// Members must not leave while DNS can't be told.
func TestMembersStayWhileTheSliceIsAnothers(t *testing.T) {
	tier.Second(t, "TestListLosesMembersBeforeTheyLeave")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.eventually("three endpoints", func() error { return w.sliceHas(3) })
	w.stopOperator()
	w.delete(w.slice())
	foreign := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	foreign.Name = listName
	w.create(foreign)
	w.startOperator()
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.always("the StatefulSet keeps its size", func() error { return w.replicasAre(3) })
	equal(w, "their endpoints", len(w.slice().Endpoints), 0)
	w.delete(foreign)
	w.settled(2)
	w.eventually("two endpoints", func() error { return w.sliceHas(2) })
}
