package e2e

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

func TestAScaleDownLosesNothingThatAnIndependentClientStored(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	f := setup(t, persistent(3))
	objects := asOfPylibmc(f.objects())
	f.pylibmc("fill", 3, objects)
	volume := f.claim(2).Spec.VolumeName

	f.scale(2)
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)

	f.pylibmcFindsAll(2, objects)
	f.expectAll(2, objects) // flags and TTLs, too
	f.expectReceipt(false)
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(volume) })
}

func TestAVolumeOfGarbageIsKept(t *testing.T) {
	tier.Second(t, "TestJourneyOfMappedMembers")
	t.Parallel()
	f := setup(t, persistent(3))
	f.fill(3, f.objects())

	f.decide(2, cachev1alpha1.DrainHold)
	f.scale(2)
	f.left(2)
	f.overwrite(filepath.Join(f.volumeOf(f.claim(2)), contract.SaveFile))
	f.decide(2, "")

	f.expectDegraded(cachev1alpha1.ReasonDrainFailed)
	claim := f.claim(2)
	if claim == nil || claim.DeletionTimestamp != nil || !held(claim) {
		t.Fatalf("the claim is not kept: %+v", claim)
	}

	// This is the documented way out.
	claim.Annotations[cachev1alpha1.AnnotationDrain] = cachev1alpha1.DrainSkip
	f.must(kube.Update(f.ctx, claim))
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)
}

// expectDegraded waits until the condition has this reason.
func (f *fixture) expectDegraded(reason string) {
	f.Helper()
	f.eventually("Degraded says why", func() bool {
		c := meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		return c.Status == metav1.ConditionTrue && c.Reason == reason
	})
	f.Log(meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded).Message)
}

// overwrite fills the file with random bytes, in place.
func (f *fixture) overwrite(path string) {
	f.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	f.must(err)
	info, err := file.Stat()
	f.must(err)
	garbage := make([]byte, 1<<20)
	for range info.Size() >> 20 {
		_, _ = rand.Read(garbage)
		_, err := file.Write(garbage)
		f.must(err)
	}
	f.must(file.Close())
}

func TestADeletedPodDrainsNothing(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	f := setup(t, persistent(3))
	objects := f.objects()
	f.fill(3, objects)
	claim, pod := f.claim(2), f.pod(2)

	f.must(kube.Delete(f.ctx, pod))
	f.replaced(pod)
	f.settled(3)

	f.expectAll(3, objects) // the member came back warm
	if again := f.claim(2); again == nil || again.UID != claim.UID {
		t.Fatalf("member 2 is on another claim: %+v", again)
	}
	var jobs batchv1.JobList
	f.must(kube.List(f.ctx, &jobs, client.InNamespace(f.namespace)))
	if len(jobs.Items) != 0 {
		t.Fatalf("%d drain Jobs for a pod that was only deleted", len(jobs.Items))
	}
}

func TestAMemberThatReturnsStartsOnAFreshVolume(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	spec := persistent(2)
	spec.Routing.Moves = cachev1alpha1.MovesOff // the survivor keeps the items
	f := setup(t, spec)
	objects := f.objects()
	f.fill(2, objects)
	before := f.claim(1)

	f.scale(1)
	f.eventually("member 1 leaves", func() bool {
		return f.claim(1) == nil || f.claim(1).Annotations[cachev1alpha1.AnnotationLeaving] != ""
	})
	f.scale(2) // the drain goes first
	f.eventually("member 1 has another claim", func() bool {
		claim := f.claim(1)
		return claim != nil && claim.UID != before.UID
	})
	f.settled(2)

	f.expectReceipt(false)
	alone := f.appAt(f.servers(2)[:1], f.address(f.servers(2)[0]))
	report, err := alone.Check(f.ctx, objects)
	f.must(err)
	if report.Found != int64(len(objects)) {
		t.Fatalf("the one survivor does not hold every object:\n%s", strings.Join(report.Examples, "\n"))
	}
}
