package read

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// The API server removes a pod that has ended at once. If a pod is about to end by itself, its kubelet reports the end first.
func TestAJobWithAGoodReceiptTellsWhetherItsPodIsAboutToEnd(t *testing.T) {
	const uid = "uid-2"
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "drain", UID: "drain", Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
		Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: uid, cachev1alpha1.AnnotationSurvivors: "2"},
	}}
	good := `{"version":1,"source":"uid-2","complete":true}`
	beside := func(state corev1.ContainerState) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "mesh", State: state}
	}
	running, over := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for what, test := range map[string]struct {
		message string
		change  func(*corev1.Pod)
		want    bool
	}{
		"its containers have ended":   {good, func(*corev1.Pod) {}, true},
		"it has ended":                {good, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"another container runs":      {good, func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, beside(running)) }, false},
		"another one has ended, too":  {good, func(p *corev1.Pod) { p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, beside(over)) }, true},
		"a native sidecar runs":       {good, func(p *corev1.Pod) { p.Status.InitContainerStatuses = []corev1.ContainerStatus{beside(running)} }, false},
		"it is being deleted":         {good, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
		"the receipt does not add up": {`{"version":1,"source":"another","complete":true}`, func(*corev1.Pod) {}, false},
	} {
		pod := ended("drain", 1, 0, test.message)
		test.change(&pod)
		if got := memcachedDrainers.Job(job, []corev1.Pod{pod}).PodEnds; got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
