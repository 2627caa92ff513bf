package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// A list that is shorter than the ring is said to be so.
func TestAListThatLeavesMembersOutIsSaid(t *testing.T) {
	in := &Input{Cluster: apitest.MakeMemcached("cache").Storage("1Gi").Defaulted().Obj(), Servers: []string{"a", "b"}}
	for name, ip := range map[string]string{"cache-0": "10.0.0.1", "cache-1": "fd00::1"} {
		pod := corev1.Pod{}
		pod.Name, pod.Status.PodIP = name, ip
		in.Pods = append(in.Pods, pod)
	}
	got := leftOut(in)
	if got == nil || got.reason != cachev1alpha1.ReasonAddressFamily || !strings.Contains(got.message, "cache-1") {
		t.Fatalf("status says %+v", got)
	}
	for i := range in.Pods {
		in.Pods[i].Status.PodIPs = append(in.Pods[i].Status.PodIPs, corev1.PodIP{IP: "fd00::7"})
	}
	if got := leftOut(in); got != nil {
		t.Errorf("each has an address of the family: %+v", got)
	}
}
