package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/build"
)

// Status says that a list is shorter than the ring.
func TestAListThatLeavesMembersOutIsSaid(t *testing.T) {
	in := &Input{Cluster: apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().Obj(), Servers: []string{"a", "b"}}
	for name, ip := range map[string]string{"cache-0": "10.0.0.1", "cache-1": "fd00::1"} {
		pod := corev1.Pod{}
		pod.Name, pod.Status.PodIP = name, ip
		in.Pods = append(in.Pods, pod)
	}
	in.Listed = []build.Endpoint{{Name: "cache-0", Address: "10.0.0.1"}}
	got := leftOut(in)
	if got == nil || got.reason != cachev1alpha1.ReasonAddressFamily || !strings.Contains(got.message, "cache-1") {
		t.Fatalf("status says %+v", got)
	}
	in.Listed = append(in.Listed, build.Endpoint{Name: "cache-1", Address: "10.0.0.2"})
	if got := leftOut(in); got != nil {
		t.Errorf("each is listed: %+v", got)
	}
	// A restart that changes a pod's family shortens the list.
	in.Listed = in.Listed[1:]
	if got := leftOut(in); got == nil || !strings.Contains(got.message, "cache-0") {
		t.Errorf("a restart shortened the list: %+v", got)
	}
	in.Listed, in.Pods = nil, in.Pods[:1]
	if got := leftOut(in); got != nil {
		t.Errorf("nothing has been listed yet: %+v", got)
	}
}

// With Services for single members, the list doesn't change; status says that, too.
func TestAListThatStaysBecauseOfServicesOfTwoFamiliesIsSaid(t *testing.T) {
	c := apitest.MakeMemcached("cache").Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Addresses = cachev1alpha1.AddressesStable }).Defaulted().Obj()
	service := func(ip string) corev1.Service {
		return corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}}}
	}
	in := &Input{Cluster: c, Servers: []string{"a", "b", "c"}, MemberServices: map[int32]corev1.Service{0: service("10.0.0.1"), 1: service("10.0.0.2")}}
	if got := leftOut(in); got != nil {
		t.Errorf("a Service has no address yet: %+v", got)
	}
	in.MemberServices[2] = service("fd00::3")
	if got := leftOut(in); got == nil || got.reason != cachev1alpha1.ReasonAddressFamily || !strings.Contains(got.message, "cache-2") {
		t.Errorf("status says %+v", got)
	}
	in.MemberServices[2] = service("10.0.0.3")
	if got := leftOut(in); got != nil {
		t.Errorf("all are of one family: %+v", got)
	}
}
