package observe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAMemberNeverStartedWhoseFirstPodHasNoContainer(t *testing.T) {
	birth := time.Unix(1000, 0)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(birth)}}
	status := func(s corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{s} }
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"waits for its node":           {func(*corev1.Pod) {}, true},
		"waits for its image":          {status(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}), true},
		"runs":                         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"runs, and others don't yet":   {status(corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}), false},
		"ended":                        {status(corev1.ContainerStatus{State: ended}), false},
		"ended, and waits":             {status(corev1.ContainerStatus{LastTerminationState: ended}), false},
		"restarted":                    {status(corev1.ContainerStatus{RestartCount: 1}), false},
		"may have had a predecessor":   {func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(birth.Add(11 * time.Second)) }, false},
		"was there soon after a claim": {func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(birth.Add(2 * time.Second)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cache-2", CreationTimestamp: metav1.NewTime(birth)}}
			pod.Status.Phase = corev1.PodPending
			test.change(&pod)
			if got := neverStarted([]corev1.Pod{pod}, "cache", 2, claim, birth.Add(time.Hour)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	others := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "cache-1"}}}
	for after, want := range map[time.Duration]bool{time.Second: true, 11 * time.Second: false} {
		if got := neverStarted(others, "cache", 2, claim, birth.Add(after)); got != want {
			t.Errorf("%s after its claim there is no pod: got %v", after, got)
		}
	}
}
