package observe

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/trim"
)

// memberAt is a member's pod that was created for this port, as the cache has it.
func memberAt(t *testing.T, ordinal, port int32) corev1.Pod {
	t.Helper()
	c := testCluster()
	c.Spec.ContainerPort = port
	command := build.StatefulSet(c, build.Options{}, 3).Spec.Template.Spec.Containers[0].Command
	pod, err := trim.Pod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: build.PodName(c.Name, ordinal)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: build.ContainerMemcached, Command: command}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return *pod.(*corev1.Pod)
}

func TestAJobIsMisdirectedWhenAMemberIsReplacedForAnotherPort(t *testing.T) {
	c := testCluster()
	c.Spec.ContainerPort = 11300
	o := &State{Cluster: c, Objects: Objects{
		StatefulSet: &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2)}},
		Pods:        []corev1.Pod{memberAt(t, 0, 11211), memberAt(t, 1, 11300)},
	}}
	ports := o.Ports(c)
	if got := []int32{ports.Of(c, 0).Memcached, ports.Of(c, 1).Memcached}; got[0] != 11211 || got[1] != 11300 {
		t.Fatalf("members listen at %v", got)
	}
	job := build.DrainJob(c, build.Options{}, ports, "data-cache-2", "uid", 2, false)
	o.PortsMark = o.Ports(c).Mark(c)
	if o.planJob(job).Misdirected {
		t.Error("its members listen where they did")
	}
	o.Pods[0] = memberAt(t, 0, 11300)
	o.PortsMark = o.Ports(c).Mark(c)
	if !o.planJob(job).Misdirected {
		t.Error("member 0 was replaced")
	}
}
