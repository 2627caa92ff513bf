package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/app"
	"example.com/memcached-operator/test/tier"
)

// In each phase of a drain, nothing holds a Memcached or a namespace that is deleted. (Every test deletes its
// namespace at its end, too.)

func TestAMemcachedIsDeletedInEachPhaseOfADrain(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	t.Parallel()
	for _, phase := range drainPhases {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			f := inPhase(t, phase)
			f.delete()
			f.expectKept(1)
		})
	}
}

func TestANamespaceIsDeletedInEachPhaseOfADrain(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	for _, phase := range drainPhases {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			inPhase(t, phase) // and the end of its namespace
		})
	}
}

var drainPhases = []cachev1alpha1.DrainPhase{
	cachev1alpha1.DrainHeld, cachev1alpha1.DrainStarting, cachev1alpha1.DrainAdding, cachev1alpha1.DrainFailed,
}

// slowly makes a drain take long: it gives the drainer a hundredth of a CPU.
var slowly = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
	Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")},
}

// inPhase makes a cluster whose second member has left, and whose drain stays in the phase.
func inPhase(t *testing.T, phase cachev1alpha1.DrainPhase) *fixture {
	t.Helper()
	spec := persistent(2)
	spec.Memory = ptr.To(resource.MustParse("64Mi"))
	objects := small(1000)
	switch phase {
	case cachev1alpha1.DrainStarting: // no node has so much
		spec.Drain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	case cachev1alpha1.DrainAdding:
		spec.Drain.Resources, objects = slowly, small(100_000)
	}
	f := setup(t, spec)
	f.fill(2, objects)
	if phase == cachev1alpha1.DrainHeld || phase == cachev1alpha1.DrainFailed {
		f.decide(1, cachev1alpha1.DrainHold)
	}
	f.scale(1)
	if phase == cachev1alpha1.DrainFailed {
		f.left(1)
		f.must(os.Truncate(filepath.Join(f.volumeOf(f.claim(1)), contract.SaveFile), 1<<20))
		f.decide(1, "")
	}
	f.inDrainPhase(phase)
	return f
}

func (f *fixture) inDrainPhase(phase cachev1alpha1.DrainPhase) {
	f.Helper()
	f.eventually(fmt.Sprintf("the drain is %s", phase), func() bool {
		drains := f.memcached().Status.Drains
		return len(drains) == 1 && drains[0].Phase == phase
	})
}

// decide annotates a claim, as a person does.
func (f *fixture) decide(ordinal int, what string) {
	f.Helper()
	value := fmt.Sprintf("%q", what)
	if what == "" {
		value = "null"
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
		`{"metadata":{"annotations":{%q:%s}}}`, cachev1alpha1.AnnotationDrain, value))
	f.must(kube.Patch(f.ctx, f.claim(ordinal), patch))
}

// small returns so many objects that are quick to store.
func small(n int) []app.Object {
	objects := make([]app.Object, n)
	for i := range objects {
		objects[i] = app.Object{Key: fmt.Sprintf("key-%d", i), Value: []byte(strings.Repeat("v", 100))}
	}
	return objects
}
