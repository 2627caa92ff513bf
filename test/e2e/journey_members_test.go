package e2e

import (
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// TestJourneyOfMappedMembers shows members whose items are on the volume at any time. The items outlive a
// memcached that the kernel kills for its memory, and a member that is killed while it ends. A volume of
// garbage is kept, and nothing holds a namespace whose drain has failed.
func TestJourneyOfMappedMembers(t *testing.T) {
	t.Parallel()
	spec := roomForSome(mapped(3))
	spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("160Mi")}
	f := setup(t, spec)
	objects := f.some()
	f.fill(3, objects)

	t.Log("out of memory")
	f.exhaust(f.pod(1))
	f.restarted(1)
	f.expectAllSoon(3, objects) // its supervisor replays them after live traffic

	t.Log("killed while it saves")
	pod := f.pod(2)
	f.signal(syscall.SIGSTOP, f.processOf(pod, "memcached"))
	f.scale(2)
	f.leaves(2)
	f.crash(pod)
	f.expectDrained(2, objects)
	f.expectReceipt(true)

	t.Log("garbage")
	f.decide(1, cachev1alpha1.DrainHold)
	f.scale(1)
	f.left(1)
	f.inDrainPhase(cachev1alpha1.DrainHeld)
	f.overwrite(filepath.Join(f.volumeOf(f.claim(1)), contract.WarmFile))
	f.decide(1, "")
	f.inDrainPhase(cachev1alpha1.DrainFailed)
	f.expectDegraded(cachev1alpha1.ReasonDrainFailed)
	if claim := f.claim(1); claim == nil || claim.DeletionTimestamp != nil || !held(claim) {
		t.Fatalf("the claim is not kept: %+v", claim)
	}
}

// TestJourneyOfMembersThatGrow first lets their volumes grow. Then one member after the other gets the memory
// that fits on its volume, and the next one only when the last has its items again. kubectl shows a person the
// progress of a long drain. The Memcached is deleted in the middle of the drain, and nothing holds it.
func TestJourneyOfMembersThatGrow(t *testing.T) {
	tier.Second(t, "TestVolumesGrowWithTheSpecBeforeTheMembersDo")
	t.Parallel()
	spec := growing()
	spec.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](10)} // minutes
	f := setup(t, spec)
	objects := f.some()
	f.fill(2, objects)
	ring := f.servers(2)

	old, absences := f.podUIDs(), f.watchItems(2, objects)
	f.patch(f.memcached(), grown)
	f.eventually("both members are replaced", func() bool { return f.rolling(old) == 2 })
	f.expectAll(2, objects)
	f.expectOneByOne(absences())
	f.haveGrown()
	f.settled(2)
	f.expectRing(ring)

	progress := f.watchProgress()
	f.scale(1)
	f.moves(3, progress)
	f.delete()
	f.expectKept(1)
}

// TestJourneyOfANode drains a node, which is not a scale-down. The node's member comes back warm, or leaves,
// and then the drain of its volume waits for the node. Meanwhile another image of the operator is deployed: the
// drain goes on, and the other member restarts with its cache. The test removes a node and the operator, so it
// runs by itself.
func TestJourneyOfANode(t *testing.T) {
	f, objects := onTwoNodes(t, roomForSome(persistent(1)))
	claim := f.claim(1)
	f.asksFrom(f.pod(0), f.pod(1).Status.PodIP)
	f.asksFrom(f.pod(1), f.pod(0).Status.PodIP)

	// This acts as kubectl drain.
	f.schedulable(goes, false)
	f.evict(f.pod(1))
	if err := kube.SubResource("eviction").Create(f.ctx, f.pod(0), &policyv1.Eviction{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second member is evicted beside the first: %v", err)
	}
	f.waitsForItsNode(1)
	f.expectNoDrain(1, claim)
	f.schedulable(goes, true)
	f.settled(2)
	f.expectAll(2, objects) // it came back warm
	f.expectNoDrain(1, claim)

	f.schedulable(goes, false)
	f.evict(f.pod(1))
	f.scale(1)
	f.expectWaits(1, waitsForVolume)
	f.upgrade(1, func() { f.schedulable(goes, true) })
	f.settled(1)
	f.expectAllSoon(1, objects)
	f.expectReceipt(false)
}
