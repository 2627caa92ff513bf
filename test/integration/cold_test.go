package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// TestMemberThatStartedColdShows in status, by the member's termination message, until the pod is replaced.
func TestMemberThatStartedColdShows(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	w.noAdvice()
	pod := w.pod("cache-1")
	before := pod.DeepCopy()
	pod.Status.ContainerStatuses[0].RestartCount = 1
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", Message: `{"coldStartNeedsBytes":134217728,"freeBytes":66060288}`}
	if err := admin.Status().Patch(w.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	message := w.advised(cachev1alpha1.ReasonStartedCold)
	if want := "cache-1 (needs 128 MiB, has 63 MiB)"; !strings.Contains(message, want) {
		t.Errorf("%q, want %q in it", message, want)
	}
	w.eventsOnce(cachev1alpha1.ReasonStartedCold)
	w.quiet()
	w.restartOperator() // the next operator reads the status, and makes no event again
	w.settled(2)
	w.quiet()
	w.eventsOnce(cachev1alpha1.ReasonStartedCold)
	w.delete(pod)
	w.noAdvice()
}
