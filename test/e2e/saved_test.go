package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/tier"
)

// Members have their items in memory, unless storage.mode is Mapped. Thanks to their supervisor, the items
// survive all that a mapped file survives by itself.

func TestSavedMembersKeepTheCache(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	t.Parallel()
	f := setup(t, persistent(3))
	if mode := f.memcached().Spec.Storage.Mode; mode != cachev1alpha1.StorageSaved {
		t.Fatalf("storage.mode is %s by default", mode)
	}
	objects := asOfPylibmc(f.objects())
	f.pylibmc("fill", 3, objects)
	volume := f.volumeOf(f.claim(1))
	if _, err := os.Stat(filepath.Join(volume, contract.WarmFile)); !os.IsNotExist(err) {
		t.Fatalf("the warm file is not in memory: %v", err)
	}

	// Its pod is deleted: the next one starts from the save.
	before := f.pod(1)
	f.must(kube.Delete(f.ctx, before, client.Preconditions{UID: &before.UID}))
	f.replaced(before)
	if _, err := os.Stat(filepath.Join(volume, contract.SaveFile)); err != nil {
		t.Fatalf("there is no save on the volume: %v", err)
	}
	f.expectAll(3, objects)

	// Its container is killed. The file in memory outlives it.
	f.crash(f.pod(1))
	f.restarted(1)
	f.expectAll(3, objects) // the member is ready when they are replayed

	// The member leaves.
	f.scale(2)
	f.expectDrained(2, objects)
	f.pylibmcFindsAll(2, objects)
	f.expectReceipt(false)
}
