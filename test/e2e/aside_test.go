package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// reclaimPolicy returns the volume's; empty if it is gone.
func (f *fixture) reclaimPolicy(volume string) corev1.PersistentVolumeReclaimPolicy {
	f.Helper()
	v := &corev1.PersistentVolume{}
	f.must(client.IgnoreNotFound(kube.Get(f.ctx, client.ObjectKey{Name: volume}, v)))
	return v.Spec.PersistentVolumeReclaimPolicy
}

func TestAClaimDeletedBeforeItsDrainLosesNothing(t *testing.T) {
	tier.Second(t, "TestAVolumeOutlivesItsClaimThatWasDeletedBeforeItsDrain")
	t.Parallel()
	f := setup(t, persistent(3))
	objects := f.some()
	f.fill(3, objects)
	claim := f.claim(2)
	policy := f.reclaimPolicy(claim.Spec.VolumeName)

	f.must(kube.Delete(f.ctx, claim)) // its pod keeps the claim
	f.scale(2)
	began := time.Now()
	policies := map[corev1.PersistentVolumeReclaimPolicy]bool{}
	f.eventually("the volume is drained from another claim", func() bool {
		if p := f.reclaimPolicy(claim.Spec.VolumeName); p != "" {
			policies[p] = true
		}
		last := f.memcached().Status.LastDrains
		return len(last) == 1 && last[0].Claim != claim.Name && last[0].Result == "Drained"
	})
	t.Logf("drained %.1f s after the scale-down", time.Since(began).Seconds())
	if len(policies) != 1 || !policies[policy] {
		t.Errorf("the volume's reclaim policy was %s, and became %v", policy, policies)
	}
	f.settled(2)
	f.expectAll(2, objects)
	f.expectReceipt(false)
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(claim.Spec.VolumeName) })
	var claims corev1.PersistentVolumeClaimList
	f.must(kube.List(f.ctx, &claims, client.InNamespace(f.namespace)))
	if i := slices.IndexFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool {
		return c.Annotations[cachev1alpha1.AnnotationLeaving] != ""
	}); i >= 0 {
		t.Errorf("claim %s is left", claims.Items[i].Name)
	}
}

func TestAMembersClaimThatWasDeletedLosesNothing(t *testing.T) {
	tier.Second(t, "TestAVolumeOutlivesItsClaimThatWasDeletedBeforeItsDrain")
	t.Parallel()
	f := setup(t, persistent(2))
	objects := f.objects()
	f.fill(2, objects)
	claim := f.claim(1)
	f.must(kube.Delete(f.ctx, claim))
	f.must(kube.Delete(f.ctx, f.pod(1)))
	f.eventually("the member's old volume is drained", func() bool {
		last := f.memcached().Status.LastDrains
		return len(last) == 1 && last[0].Result == "Drained"
	})
	f.settled(2)
	if c := f.claim(1); c == nil || c.UID == claim.UID || c.Spec.VolumeName == claim.Spec.VolumeName {
		t.Errorf("the member is not on a fresh volume: %+v", c)
	}
	f.expectAll(2, objects)
	f.eventually("the volume is gone", func() bool { return !f.volumeExists(claim.Spec.VolumeName) })
}
