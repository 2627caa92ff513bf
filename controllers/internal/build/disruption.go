package build

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// DisruptionBudget keeps evictions from removing several members at once; nil for a cluster of one.
// A member that isn't ready may always be evicted: it serves no client, and must not block the
// drain of its node.
func DisruptionBudget(c *cachev1alpha1.Memcached) *policyac.PodDisruptionBudgetApplyConfiguration {
	b := c.Spec.PodDisruptionBudget
	if *c.Spec.Size <= 1 || !ptr.Deref(b.Enabled, true) {
		return nil
	}
	return policyac.PodDisruptionBudget(c.Name, c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(ptr.Deref(b.MaxUnavailable, intstr.FromInt32(1))).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))))
}
