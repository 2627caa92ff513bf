package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/tier"
)

// TestMembersThatMustNotShareANode has no two members on a node, and status says why the third doesn't start.
// No second member is evicted before the first is back with its items. Volumes and grace period follow from the
// memory.
func TestMembersThatMustNotShareANode(t *testing.T) {
	tier.Second(t, "TestJourneyOfANode")
	t.Parallel()
	spec := persistent(2)
	spec.Storage = &cachev1alpha1.StorageSpec{}
	spec.PodTemplate.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentMember}},
		}},
	}}
	f := setup(t, spec)
	objects := f.objects()
	f.fill(2, objects)
	if a, b := f.pod(0).Spec.NodeName, f.pod(1).Spec.NodeName; a == b {
		t.Errorf("both members are on %s", a)
	}
	if got := *f.pod(0).Spec.TerminationGracePeriodSeconds; got != 30+192/16 {
		t.Errorf("a grace period of %d s", got)
	}
	if !f.volumesAre(2, "472Mi") {
		t.Errorf("claim 0 has %v", f.claim(0).Status.Capacity)
	}

	f.scale(3)
	f.eventually("the third finds no node", func() bool {
		pod := f.pod(2)
		return pod != nil && unschedulable(pod)
	})
	f.scale(2)
	f.eventually("claim 2 is gone", func() bool { return f.claim(2) == nil })
	f.settled(2)

	f.evict(f.pod(0))
	err := kube.SubResource("eviction").Create(f.ctx, f.pod(1), &policyv1.Eviction{})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second member is evicted beside the first: %v", err)
	}
	evicted := f.pod(1)
	f.evict(evicted)
	f.eventually("the second is back", func() bool {
		pod := f.pod(1)
		return pod != nil && pod.UID != evicted.UID
	})
	f.settled(2)
	f.expectAll(2, objects)
}
