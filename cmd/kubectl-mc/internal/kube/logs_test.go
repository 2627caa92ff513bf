package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
)

func podOf(name string, labels map[string]string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}
}

var (
	managed          = map[string]string{cachev1alpha1.LabelManagedBy: cachev1alpha1.ManagedBy}
	managerContainer = corev1.Container{Name: "manager", Env: []corev1.EnvVar{{Name: "OPERATOR_IMAGE", Value: "operator:1"}}}
)

// The chart's nameOverride gives the operator's pods another name, and other operators have a container manager, too.
func TestTheOperatorsPodsAreFoundUnderAnyName(t *testing.T) {
	s := &Session{Namespace: "shop", Client: fake.NewClientBuilder().WithScheme(controllers.NewScheme()).WithObjects(
		podOf("memcached-operator-1", map[string]string{cachev1alpha1.LabelName: "memcached-operator"}, managerContainer),
		podOf("caches-1", map[string]string{cachev1alpha1.LabelName: "caches"}, managerContainer),
		podOf("another-operator-1", nil, corev1.Container{Name: "manager"}),
		podOf("cache-0", managed, corev1.Container{Name: "memcached"}, managerContainer),
	).Build()}
	m := &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cachev1alpha1.AnnotationOperator: "operators/lease"}}}
	pods, err := s.ManagerPods(t.Context(), m)
	if err != nil || len(pods) != 2 || pods[0].Name != "caches-1" || pods[1].Name != "memcached-operator-1" {
		t.Errorf("%d pods: %v", len(pods), err)
		for i := range pods {
			t.Log(pods[i].Name)
		}
	}
}

// A person may call a sidecar manager: its lines are no program's of the operator, and are in no archive for support.
func TestASidecarIsNoProgramOfTheOperator(t *testing.T) {
	member := podOf("cache-0", managed, corev1.Container{Name: "memcached"}, managerContainer)
	operator := podOf("operator-1", nil, managerContainer, corev1.Container{Name: "memcached"})
	for _, test := range []struct {
		pod             *corev1.Pod
		container, want string
	}{
		{member, "memcached", "memcached"}, {member, "manager", ""}, {member, "sidecar", ""},
		{operator, "manager", "manager"}, {operator, "memcached", ""},
	} {
		if got := program(test.pod, test.container); got != test.want {
			t.Errorf("%s/%s is %q, want %q", test.pod.Name, test.container, got, test.want)
		}
	}
}
