package trim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

func trimmed(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := Pod(pod.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return out.(*corev1.Pod)
}

// TestAPodOfAnySizeTakesLittleMemory: a client that may write pods or their status must not be able
// to fill the operator's memory.
func TestAPodOfAnySizeTakesLittleMemory(t *testing.T) {
	huge := strings.Repeat("x", 250<<10)
	pod := &corev1.Pod{}
	pod.Name, pod.Labels, pod.Annotations = "cache-0", map[string]string{}, map[string]string{"note": huge, "cache.example.com/claim-uid": huge}
	pod.OwnerReferences = slices.Repeat([]metav1.OwnerReference{{Kind: huge, Name: huge, UID: "1", Controller: ptr.To(true)}}, 3000)
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: huge}}
	for i := range 3000 {
		pod.Labels[fmt.Sprintf("people/%d", i)] = "x"
		pod.Labels[fmt.Sprintf("cache.example.com/%d", i)] = "x"
		pod.Annotations[fmt.Sprintf("cache.example.com/%d", i)] = "x"
		pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("people/%d", i))
		state := corev1.ContainerState{
			Waiting:    &corev1.ContainerStateWaiting{Reason: huge, Message: huge},
			Terminated: &corev1.ContainerStateTerminated{Reason: huge, Message: huge},
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: fmt.Sprint("c", i), Image: "i", State: state, LastTerminationState: state,
		})
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Args: []string{"x"}})
	}
	pod.Status.InitContainerStatuses = pod.Status.ContainerStatuses
	pod.Status.Message, pod.Status.Conditions = huge, []corev1.PodCondition{{Type: corev1.PodReady, Message: huge}}
	b, err := json.Marshal(trimmed(t, pod))
	if err != nil {
		t.Fatal(err)
	}
	if most := 32 << 10; len(b) > most {
		t.Errorf("%d bytes are kept, want %d at most", len(b), most)
	}
}

// The kept fields of a pod are those that a reconcile reads: its memory, why containers wait and how they
// ended, also init containers, and the fields that a selector asks for.
func TestFieldsThatAReconcileReadsOfAPodAreKept(t *testing.T) {
	receipt := strings.Repeat("r", contract.MaxReceiptBytes)
	waiting := []corev1.ContainerStatus{{
		Name: "install", Image: "operator:1", RestartCount: 3,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}},
	}}
	ended := []corev1.ContainerStatus{{
		Name: "drainer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 5, Message: receipt, ContainerID: "containerd://1"}},
	}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cache-0", Annotations: map[string]string{"cache.example.com/target": "2", "kubectl.kubernetes.io/last-applied": "x"},
			Labels:          map[string]string{"app.kubernetes.io/instance": "cache", "controller-revision-hash": "1", "team": "shop", "acme.io/x": "y"},
			OwnerReferences: []metav1.OwnerReference{{UID: "1"}},
		},
		Spec: corev1.PodSpec{NodeName: "a", Volumes: []corev1.Volume{{Name: "v"}}, Containers: []corev1.Container{
			{Name: "sidecar", Command: []string{"e"}},
			{Name: "memcached", Image: "m", Command: []string{"/supervisor/drainer", "supervise", "--", "memcached", "-m", "64", "-p", "1"}},
		}},
		Status: corev1.PodStatus{ContainerStatuses: ended, InitContainerStatuses: waiting, PodIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "1"}}},
	}
	got := trimmed(t, pod)
	want := pod.DeepCopy()
	delete(want.Annotations, "kubectl.kubernetes.io/last-applied")
	want.Spec = corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: "memcached", Command: []string{"memcached", "-m", "64", "-p", "1"}}}}
	want.Status.HostIPs, want.Status.InitContainerStatuses[0].Image = nil, ""
	want.Status.ContainerStatuses[0].State.Terminated.ContainerID = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := build.MemoryOf(got.Spec.Containers[0].Command); got != 64<<20 {
		t.Errorf("memory %d", got)
	}
	if diff := cmp.Diff(got, trimmed(t, got)); diff != "" {
		t.Errorf("trimmed twice: %s", diff)
	}
}

// TestOursIsKeptAmongManyContainers that another client has injected.
func TestOursIsKeptAmongManyContainers(t *testing.T) {
	pod := &corev1.Pod{}
	for i := range 100 {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("sidecar-", i)})
	}
	pod.Status.ContainerStatuses[99].Name = "memcached"
	pod.Status.InitContainerStatuses = slices.Clone(pod.Status.ContainerStatuses)
	pod.Status.InitContainerStatuses[99].Name = "install"
	got := trimmed(t, pod).Status
	for first, all := range map[string][]corev1.ContainerStatus{"memcached": got.ContainerStatuses, "install": got.InitContainerStatuses} {
		if len(all) != maxContainers || all[0].Name != first {
			t.Errorf("%d, first %s, want %s", len(all), all[0].Name, first)
		}
	}
}

func TestATombstoneStaysAsItIs(t *testing.T) {
	in := cache.DeletedFinalStateUnknown{Key: "shop/cache-0"}
	if out, err := Pod(in); err != nil || out != any(in) {
		t.Errorf("%v, %v", out, err)
	}
}

// A device that was never bound has no place in a drainer's pod, so its template's mode counts.
func TestTheModeOfADevicesTemplateIsKept(t *testing.T) {
	set := &appsv1.StatefulSet{}
	for _, mode := range []*corev1.PersistentVolumeMode{nil, ptr.To(corev1.PersistentVolumeFilesystem), ptr.To(corev1.PersistentVolumeBlock)} {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: mode}})
	}
	if _, err := Target(set); err != nil {
		t.Fatal(err)
	}
	for i, block := range []bool{false, false, true} {
		if is := ptr.Deref(set.Spec.VolumeClaimTemplates[i].Spec.VolumeMode, ""); (is == corev1.PersistentVolumeBlock) != block {
			t.Errorf("template %d has mode %q", i, is)
		}
	}
}
