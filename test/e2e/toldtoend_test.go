package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// The drainer here does nothing until it is told to end, and ends with exit code 0 then, as many programs do.
func TestADrainerThatIsToldToEndHasNotDrained(t *testing.T) {
	tier.Second(t, "TestExitCodeZeroOfADrainerThatWasToldToEndProvesNothingWithoutARule")
	evict := func(f *fixture, pod *corev1.Pod) {
		f.must(kube.SubResource("eviction").Create(f.ctx, pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}))
	}
	remove := func(f *fixture, pod *corev1.Pod) {
		f.must(kube.Delete(f.ctx, pod, client.Preconditions{UID: ptr.To(pod.UID)}))
	}
	for what, test := range map[string]struct {
		// spec is added to that of the StatefulSetDrain; end ends the drainer.
		spec string
		end  func(*fixture, *corev1.Pod)
	}{
		"it is evicted":        {"", evict},
		"it is deleted":        {"", remove},
		"its deadline is over": {"  activeDeadline: 30s\n", func(*fixture, *corev1.Pod) {}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := inNamespace(t)
			f.name = "spool"
			f.applySpoolThatDrainsNothing(test.spec)
			f.membersReady(3)
			volume := f.volumeOfSpool(2)
			f.scaleSet(2)
			var first *corev1.Pod
			f.eventually("a drainer is at work", func() bool {
				for _, p := range f.drainers() {
					if p.Status.Phase == corev1.PodRunning {
						first = &p
					}
				}
				return first != nil
			})
			test.end(f, first)
			f.eventually("its end is no success", func() bool { return f.triesAgain(first) })
			for _, last := range f.drain().Status.LastDrains {
				t.Errorf("the drain of member %d has ended: %s", last.Ordinal, last.Result)
			}
			if v := (&corev1.PersistentVolume{}); kube.Get(f.ctx, client.ObjectKey{Name: volume}, v) != nil || v.DeletionTimestamp != nil || v.Spec.ClaimRef == nil {
				t.Errorf("volume %s is %+v", volume, v.Spec)
			}
		})
	}
}

// applySpoolThatDrainsNothing applies the sample without a receipt, with more in its StatefulSetDrain's spec, and with a drainer
// that waits to be told to end.
func (f *fixture) applySpoolThatDrainsNothing(more string) {
	f.Helper()
	sample, err := os.ReadFile(samples + "statefulsetdrain_spool.yaml")
	f.must(err)
	for _, change := range [][2]string{
		{"  receipt: receipt.found == receipt.moved + receipt.skipped\n", more},
		{"image: example.com/spool:test\n          imagePullPolicy: IfNotPresent\n          args: [drain, --dir=/data]\n", "image: example.com/pause:dev\n          imagePullPolicy: IfNotPresent\n"},
	} {
		if bytes.Count(sample, []byte(change[0])) != 1 {
			f.Fatalf("the sample has not one %q", change[0])
		}
		sample = bytes.Replace(sample, []byte(change[0]), []byte(change[1]), 1)
	}
	file := filepath.Join(f.TempDir(), "sample.yaml")
	f.must(os.WriteFile(file, sample, 0o600))
	f.kubectl("apply", "-f", file)
}

// volumeOfSpool is the name of a member's volume.
func (f *fixture) volumeOfSpool(ordinal int) string {
	f.Helper()
	for _, v := range f.pod(ordinal).Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claim := &corev1.PersistentVolumeClaim{}
			f.must(kube.Get(f.ctx, f.key(v.PersistentVolumeClaim.ClaimName), claim))
			return claim.Spec.VolumeName
		}
	}
	f.Fatalf("member %d has no volume", ordinal)
	return ""
}

// triesAgain tells whether the drain goes on after the end of this drainer: another one is at work, or the drain has failed
// because the end counts for nothing.
func (f *fixture) triesAgain(after *corev1.Pod) bool {
	f.Helper()
	for _, p := range f.drainers() {
		if p.UID != after.UID && p.Status.Phase == corev1.PodRunning {
			return true
		}
	}
	for _, d := range f.drain().Status.Drains {
		if d.Phase == cachev1alpha1.DrainFailed && strings.Contains(d.Message, "told to end") {
			return true
		}
	}
	return false
}
