package read

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// A user's template names the drainer's container as it likes, and admission may put others before
// it. A Memcached's drainer has one name, whatever its pod's annotations say.
func TestTheDrainerIsTheContainerThatItsOwnerNames(t *testing.T) {
	ended := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	pod := &corev1.Pod{}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{ended("proxy", 1), ended("empty-the-queue", 2), ended(build.ContainerDrainer, 3)}
	for what, test := range map[string]struct {
		labels, annotations map[string]string
		want                int32
	}{
		"a Memcached's":                {nil, nil, 3},
		"a Memcached's that is spoilt": {nil, map[string]string{cachev1alpha1.AnnotationContainer: "proxy"}, 3},
		"a StatefulSetDrain's": {
			map[string]string{cachev1alpha1.LabelStatefulSetDrain: "queue"}, map[string]string{cachev1alpha1.AnnotationContainer: "empty-the-queue"}, 2,
		},
		"a StatefulSetDrain's that names none": {map[string]string{cachev1alpha1.LabelStatefulSetDrain: "queue"}, nil, 0},
	} {
		pod.Labels, pod.Annotations = test.labels, test.annotations
		got := int32(0)
		if state := Drainer(pod); state.Terminated != nil {
			got = state.Terminated.ExitCode
		}
		if got != test.want {
			t.Errorf("%s: got the container that ended with %d, want %d", what, got, test.want)
		}
	}
}
