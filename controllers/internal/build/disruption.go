package build

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// StepsOutForEvictions tells whether a member on a node that is drained steps out of the ring before it may be evicted.
func StepsOutForEvictions(c *cachev1alpha1.Memcached) bool {
	return Moved(c) && c.Spec.PodDisruptionBudget.Evictions == cachev1alpha1.EvictionsStepOut
}

// EvictOne is the merge patch of a PodDisruptionBudget that allows evictions without the operator.
const EvictOne = `{"spec":{"maxUnavailable":1}}`

// EvictsNone tells whether the budget forbids the eviction of every ready member.
func EvictsNone(b *policyv1.PodDisruptionBudget) bool {
	most := b.Spec.MaxUnavailable
	return most != nil && *most == intstr.FromInt32(0)
}

// DisruptionBudget keeps evictions from removing several members at once; nil for a cluster of one. A member
// that isn't ready may always be evicted, because it serves no client and must not block the drain of its
// node. stepOut: no ready member may be evicted.
func DisruptionBudget(c *cachev1alpha1.Memcached, stepOut bool) *policyac.PodDisruptionBudgetApplyConfiguration {
	b := c.Spec.PodDisruptionBudget
	if *c.Spec.Size <= 1 || !ptr.Deref(b.Enabled, true) {
		return nil
	}
	most := ptr.Deref(b.MaxUnavailable, intstr.FromInt32(1))
	if stepOut {
		most = intstr.FromInt32(0)
	}
	return policyac.PodDisruptionBudget(c.Name, c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(most).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))))
}
