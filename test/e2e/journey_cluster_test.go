package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// A journey shows on one cluster what many tests show one by one. Journeys are in the first tier, those tests
// in the second.

// TestJourneyOfACluster goes with the persistent sample from kubectl apply to its deletion. An independent
// client library fills it. Nothing is lost when a container is killed, a pod is deleted, members leave, or the
// cluster hibernates, or is deleted and created again.
func TestJourneyOfACluster(t *testing.T) {
	t.Parallel()
	f := inNamespace(t)
	f.applySample("cache_v1alpha1_memcached_persistent.yaml")
	f.patch(f.memcached(), `{"spec":{"routing":{"patience":"24h"}}}`)
	f.available()
	objects := asOfPylibmc(f.some())
	f.pylibmc("fill", 3, objects)
	if _, err := os.Stat(filepath.Join(f.volumeOf(f.claim(1)), contract.WarmFile)); !os.IsNotExist(err) {
		t.Errorf("the warm file is not in memory: %v", err)
	}

	t.Log("a container is killed, and a pod is deleted: neither is a scale-down")
	f.crash(f.pod(1))
	claim, before := f.claim(2), f.pod(2)
	f.must(kube.Delete(f.ctx, before, client.Preconditions{UID: &before.UID}))
	f.restarted(1)
	f.replaced(before)
	if _, err := os.Stat(filepath.Join(f.volumeOf(claim), contract.SaveFile)); err != nil {
		t.Errorf("there is no save on the volume: %v", err)
	}
	f.settled(3)
	f.expectAll(3, objects) // a member is ready when its items are back
	f.expectNoDrain(2, claim)

	t.Log("a member leaves; an application with the old list goes on")
	objects = append(objects, f.leavesWhenNoClientCalls(objects[:1000])...)
	f.expectAll(2, objects)

	t.Log("the cluster hibernates")
	f.hibernate(2)
	f.scale(2)
	f.settled(2)
	f.expectAll(2, objects)

	t.Log("a member leaves at once, and its volume is drained")
	f.patch(f.memcached(), `{"spec":{"routing":{"patience":"0s"}}}`)
	volume := f.claim(1).Spec.VolumeName
	f.kubectl("scale", "mc", "cache", "--replicas=1")
	f.expectDrained(1, objects)
	if r := f.lastReceipt(); r.Unclean || r.Moved != 0 {
		t.Errorf("the receipt is %+v", r)
	}
	f.eventually("kubectl describe shows the drain's events, in order and each once", func() bool {
		return slices.Equal(f.describedEvents("data-cache-1"), []string{"DrainStarted", "Drained", "Released"})
	})
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(volume) })
	f.eventually("the cluster is ready", func() bool {
		return meta.IsStatusConditionTrue(f.memcached().Status.Conditions, cachev1alpha1.ConditionReady)
	})

	t.Log("it is deleted; its successor has the cache, and leaves nothing")
	f.delete()
	f.expectKept(0)
	spec := persistent(1)
	spec.Drain.WhenDeleted = cachev1alpha1.DeletionDelete
	f.create(spec)
	f.settled(1)
	f.expectAll(1, objects)
	volume = f.claim(0).Spec.VolumeName
	f.delete()
	f.eventually("the claim is gone", func() bool { return f.claim(0) == nil })
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(volume) })
}
