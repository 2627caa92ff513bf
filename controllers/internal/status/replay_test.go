package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// TestNoRoomToReplayIsToldBeforeARollOut, from the spec and from the memory that the members run
// with until they are replaced.
func TestNoRoomToReplayIsToldBeforeARollOut(t *testing.T) {
	spec := func(memory, size string, mode cachev1alpha1.StorageMode) func(*Input) {
		return func(in *Input) {
			in.Cluster.Spec.Memory = ptr.To(resource.MustParse(memory))
			in.Cluster.Spec.Storage.Size, in.Cluster.Spec.Storage.Mode = resource.MustParse(size), mode
		}
	}
	runs := func(memory string) func(*Input) {
		return func(in *Input) {
			before := in.Cluster.DeepCopy()
			before.Spec.Memory = ptr.To(resource.MustParse(memory))
			command := build.StatefulSet(before, build.Options{}, 1).Spec.Template.Spec.Containers[0].Command
			in.Pods[1].Spec.Containers = []corev1.Container{{Name: "memcached", Command: command}}
		}
	}
	const mapped, saved = cachev1alpha1.StorageMapped, cachev1alpha1.StorageSaved
	install := func(i int, message string) func(*Input) {
		return func(in *Input) {
			in.Pods[i].Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "install", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
			}}
		}
	}
	killed := func(i int, message string) func(*Input) {
		return func(in *Input) {
			in.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "memcached", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Message: message}},
			}}
		}
	}
	const fast, slow = `{"coldStartNeedsBytes":0,"freeBytes":0,"saveBytesPerSecond":104857600}`, `{"coldStartNeedsBytes":0,"freeBytes":0,"saveBytesPerSecond":1048576}`
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
	}{
		"room for two":            {input(2).with(spec("64Mi", "129Mi", mapped)), "", ""},
		"room for one":            {input(2).with(spec("64Mi", "128Mi", mapped)), cachev1alpha1.ReasonNoRoomToReplay, "128 MiB"},
		"raised, for the old one": {input(2).with(spec("96Mi", "200Mi", mapped)).with(runs("64Mi")), "", ""},
		"raised too far":          {input(2).with(spec("128Mi", "200Mi", mapped)).with(runs("64Mi")), cachev1alpha1.ReasonNoRoomToReplay, "storage.size is 200 MiB"},
		"lowered":                 {input(2).with(spec("64Mi", "200Mi", mapped)).with(runs("144Mi")), cachev1alpha1.ReasonNoRoomToReplay, "(144 MiB) and a new one (64 MiB)"},
		"saved":                   {input(2).with(spec("64Mi", "65Mi", saved)), "", ""},
		"time to save":            {input(2).with(spec("64Mi", "65Mi", saved)).with(install(0, fast)), "", ""},
		"too little time":         {input(2).with(spec("64Mi", "65Mi", saved)).with(install(0, fast)).with(install(1, slow)), cachev1alpha1.ReasonGracePeriodTooShort, "memory (64 MiB) needs a grace period of 94 s at 1.0 MiB/s, the rate of the last save of cache-1, and has 34 s"},
		"killed while it saved":   {input(2).with(spec("64Mi", "65Mi", saved)).with(killed(1, `{"savedBytes":5,"saveBytes":9,"saveBytesPerSecond":1048576}`)), cachev1alpha1.ReasonGracePeriodTooShort, "needs a grace period of 94 s"},
		"nonsense":                {input(2).with(spec("64Mi", "65Mi", saved)).with(install(0, `{"saveBytesPerSecond":9223372036854775807}`)), "", ""},
		"less than nothing":       {input(2).with(spec("64Mi", "65Mi", saved)).with(install(0, `{"saveBytesPerSecond":-1}`)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			advice := compute(t, test.in).Advice
			for _, reason := range []string{cachev1alpha1.ReasonNoRoomToReplay, cachev1alpha1.ReasonGracePeriodTooShort} {
				want := ""
				if reason == test.reason {
					want = test.message
				}
				checkAdvice(t, advice, reason, want)
			}
		})
	}
}
