package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// ready answers whether all is as the spec wants it, for kubectl wait, Flux and Argo CD. Ready is false while
// items are moved or drained, so that a script can wait for the end of a scaling. Available says whether the
// cluster serves meanwhile. Advice does not count.
func ready(in *Input, s *cachev1alpha1.MemcachedStatus, others []metav1.Condition) metav1.Condition {
	const kind = cachev1alpha1.ConditionReady
	size := *in.Cluster.Spec.Size
	is := func(kind string, status metav1.ConditionStatus) *metav1.Condition {
		if c := meta.FindStatusCondition(others, kind); c != nil && c.Status == status {
			return c
		}
		return nil
	}
	not := func(c *metav1.Condition) metav1.Condition { return condition(kind, false, c.Reason, "%s", c.Message) }
	if deleting(in) {
		return condition(kind, false, cachev1alpha1.ReasonDeleting, "the Memcached is being deleted")
	}
	if c := is(cachev1alpha1.ConditionProgressing, metav1.ConditionFalse); c != nil && c.Reason == cachev1alpha1.ReasonPaused {
		return not(c)
	}
	for _, kind := range []string{cachev1alpha1.ConditionDegraded, cachev1alpha1.ConditionProgressing} {
		if c := is(kind, metav1.ConditionTrue); c != nil {
			return not(c)
		}
	}
	if size == 0 && s.Size == 0 {
		c := available(in, s)
		return condition(kind, true, c.Reason, "%s", c.Message)
	}
	for _, kind := range []string{cachev1alpha1.ConditionDraining, cachev1alpha1.ConditionMoving} {
		if c := is(kind, metav1.ConditionTrue); c != nil {
			return not(c)
		}
	}
	for _, kind := range []string{
		cachev1alpha1.ConditionAvailable, cachev1alpha1.ConditionMonitored, cachev1alpha1.ConditionBindable, cachev1alpha1.ConditionRoutersReady,
	} {
		if c := is(kind, metav1.ConditionFalse); c != nil {
			return not(c)
		}
	}
	return condition(kind, true, cachev1alpha1.ReasonAsWanted, "%d of %d members are ready, and all is as the spec wants it", s.ReadySize, size)
}
