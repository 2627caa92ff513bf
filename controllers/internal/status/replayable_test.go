package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// TestNoRoomToReplayIsToldBeforeARollOut: from the spec, and from what the members
// run with until they are replaced.
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
	for name, test := range map[string]struct {
		in      *Input
		reason  string
		message string
	}{
		"room for two":            {input(2).with(spec("64Mi", "129Mi", mapped)), cachev1alpha1.ReasonRoomToReplay, "second"},
		"room for one":            {input(2).with(spec("64Mi", "128Mi", mapped)), cachev1alpha1.ReasonNoRoomToReplay, "128 MiB"},
		"raised, for the old one": {input(2).with(spec("96Mi", "200Mi", mapped)).with(runs("64Mi")), cachev1alpha1.ReasonRoomToReplay, "second"},
		"raised too far":          {input(2).with(spec("128Mi", "200Mi", mapped)).with(runs("64Mi")), cachev1alpha1.ReasonNoRoomToReplay, "storage.size is 200 MiB"},
		"lowered":                 {input(2).with(spec("64Mi", "200Mi", mapped)).with(runs("144Mi")), cachev1alpha1.ReasonNoRoomToReplay, "(144 MiB) and a new one (64 MiB)"},
		"saved":                   {input(2).with(spec("64Mi", "65Mi", saved)), cachev1alpha1.ReasonRoomToReplay, "needs no room for a second file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := meta.FindStatusCondition(compute(t, test.in).Conditions, cachev1alpha1.ConditionReplayable)
			if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.message) {
				t.Fatalf("got %+v, want %s with %q", c, test.reason, test.message)
			}
			if told := c.Status == "True"; told != (test.reason == cachev1alpha1.ReasonRoomToReplay) {
				t.Errorf("%s is %s", c.Reason, c.Status)
			}
		})
	}
}
