package e2e

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// The volumes grow first. Then the members get the memory that fits on them, one at a time, and replay their
// items. A member that joins later is as large.
func TestVolumesGrowAndTheMembersKeepTheirItems(t *testing.T) {
	tier.Second(t, "TestVolumesGrowWithTheSpecBeforeTheMembersDo")
	t.Parallel()
	f := setup(t, growing())
	objects := f.objects()
	f.fill(2, objects)

	f.patch(f.memcached(), grown)
	f.haveGrown()
	f.settled(2)
	f.expectAllSoon(2, objects)

	f.scale(3)
	f.settled(3)
	f.eventually("the third volume has grown, too", func() bool { return f.volumesAre(3, "1Gi") })
	f.eventually("status says so", func() bool {
		return meta.IsStatusConditionTrue(f.memcached().Status.Conditions, cachev1alpha1.ConditionReady)
	})
}

// growing is the spec of a cluster. grown gives it larger volumes, and then more memory.
func growing() cachev1alpha1.MemcachedSpec {
	spec := persistent(2)
	spec.Storage.Size = resource.MustParse("256Mi")
	return spec
}

const grown = `{"spec":{"memory":"256Mi","storage":{"size":"1Gi"}}}`

func (f *fixture) haveGrown() {
	f.Helper()
	f.eventually("both members have the memory, and volumes for it", func() bool {
		return f.volumesAre(2, "1Gi") && f.startsWith(0, " -m 256 ") && f.startsWith(1, " -m 256 ")
	})
}

func TestAStorageClassThatLetsNoVolumeGrowIsToldOf(t *testing.T) {
	tier.Second(t, "TestVolumesGrowWithTheSpecBeforeTheMembersDo")
	t.Parallel()
	f := onCluster(t)
	local := &storagev1.StorageClass{}
	f.must(kube.Get(f.ctx, client.ObjectKey{Name: "local"}, local))
	fixed := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "fixed-"},
		Provisioner: local.Provisioner, ReclaimPolicy: local.ReclaimPolicy, VolumeBindingMode: local.VolumeBindingMode,
	}
	f.must(kube.Create(f.ctx, fixed))
	f.Cleanup(func() { f.remove(fixed) })
	spec := persistent(1)
	spec.Memory, spec.Storage.Size = ptr.To(resource.MustParse("64Mi")), resource.MustParse("128Mi")
	spec.Storage.StorageClassName = &fixed.Name
	f = setup(t, spec)

	f.patch(f.memcached(), `{"spec":{"storage":{"size":"256Mi"}}}`)
	f.eventually("the condition says so", func() bool {
		c := meta.FindStatusCondition(f.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		return c != nil && c.Reason == cachev1alpha1.ReasonVolumesCannotGrow && strings.Contains(c.Message, "must support resize")
	})
	f.settled(1)
}

// remove deletes an object without a namespace, in a cleanup.
func (f *fixture) remove(object client.Object) {
	ctx, cancel := cleanupContext()
	defer cancel()
	if err := client.IgnoreNotFound(kube.Delete(ctx, object)); err != nil {
		f.Errorf("delete %s: %v", object.GetName(), err)
	}
}

// patch changes an object by a merge patch.
func (f *fixture) patch(object client.Object, patch string) {
	f.Helper()
	f.must(kube.Patch(f.ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// volumesAre tells whether the first members' volumes have this size.
func (f *fixture) volumesAre(members int, size string) bool {
	f.Helper()
	for ordinal := range members {
		if claim := f.claim(ordinal); claim == nil || claim.Status.Capacity.Storage().String() != size {
			return false
		}
	}
	return true
}

// startsWith tells whether the member is ready, and was started with the words.
func (f *fixture) startsWith(ordinal int, words string) bool {
	f.Helper()
	pod := f.pod(ordinal)
	return pod != nil && pod.DeletionTimestamp == nil && ready(pod) && strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), words)
}
