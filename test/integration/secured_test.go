package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/player"
)

// securedSample returns that of config/samples, with the name of these tests.
func (w *world) securedSample() *cachev1alpha1.Memcached {
	w.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", "cache_v1alpha1_memcached_secured.yaml"))
	if err != nil {
		w.Fatal(err)
	}
	m := &cachev1alpha1.Memcached{}
	if err := yaml.UnmarshalStrict(text, m); err != nil {
		w.Fatal(err)
	}
	m.Name, m.Namespace = name, w.namespace
	return m
}

// The kubelet reads the Secrets; the operator may not. So drainers log in, the operator asks no member for its
// memory, and status has a member's message about a wrong Secret.
func TestTheOperatorReadsNoSecretOfASecuredCluster(t *testing.T) {
	w := newNamespace(t)
	w.memory = func(_ context.Context, address string) (controllers.Holds, error) {
		t.Errorf("member %s is asked, in plain text", address)
		return controllers.Holds{}, nil
	}
	w.startOperator()
	w.create(w.securedSample())
	w.settled(3)

	pod := w.pod("cache-1")
	ready := pod.Status.DeepCopy()
	w.containerIs(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		`{"reason":"SecretInvalid","message":"ca.crt: no such file or directory"}`)
	message := w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonSecretInvalid)
	if want := "pod cache-1 does not start: ca.crt: no such file"; !strings.Contains(message, want) {
		t.Errorf("%q, want %q in it", message, want)
	}
	w.containerIs(pod, ready.ContainerStatuses[0].State, `{"reason":"SecretInvalid","message":"of before"}`)
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)

	kubes.Play(w.namespace, player.Hang)
	w.change(w.memcached(), `{"spec":{"size":2,"drain":{"onShortage":"Wait"}}}`)
	w.advised(cachev1alpha1.ReasonMemoryUnknown)
	w.eventually("a drainer that logs in by TLS", func() error {
		jobs := w.jobs()
		if len(jobs) == 0 {
			return errors.New("no Job")
		}
		command := jobs[0].Spec.Template.Spec.Containers[0].Command
		if !slices.Contains(command, "--tls-dir=/tls") || !slices.Contains(command, "--auth-file=/auth/auth-file") {
			return fmt.Errorf("%q", command)
		}
		return nil
	})
	kubes.Play(w.namespace, player.Succeed(1))
	w.settled(2)
}

// containerIs plays a kubelet that reports this state of the first container, which has ended once with this
// message.
func (w *world) containerIs(pod *corev1.Pod, state corev1.ContainerState, message string) {
	w.Helper()
	before := pod.DeepCopy()
	status := &pod.Status.ContainerStatuses[0]
	status.State = state
	status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: message}
	if err := admin.Status().Patch(w.Context(), pod, client.MergeFrom(before)); err != nil {
		w.Fatal(err)
	}
}
