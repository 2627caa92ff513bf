package status

import (
	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// phase is the first phase that holds: those that need a person come first.
func phase(in *Input, s *cachev1alpha1.MemcachedStatus) cachev1alpha1.Phase {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(s.Conditions, kind) }
	size := *in.Cluster.Spec.Size
	switch {
	case deleting(in):
		return cachev1alpha1.PhaseDeleting
	case is(cachev1alpha1.ConditionDegraded):
		return cachev1alpha1.PhaseDegraded
	case is(cachev1alpha1.ConditionDraining):
		return cachev1alpha1.PhaseDraining
	case size == 0 && s.Size == 0 && in.Cluster.Spec.HasVolumes():
		return cachev1alpha1.PhaseHibernated
	case is(cachev1alpha1.ConditionMoving):
		return cachev1alpha1.PhaseMoving
	case in.Plan.Warming.Open && warmingNow(s):
		return cachev1alpha1.PhaseWarming
	case !is(cachev1alpha1.ConditionProgressing):
		return cachev1alpha1.PhaseRunning
	case in.Cluster.Status.Phase == "" || in.Cluster.Status.Phase == cachev1alpha1.PhasePending && s.ReadySize < size:
		return cachev1alpha1.PhasePending
	}
	return cachev1alpha1.PhaseScaling
}

// warmingNow tells whether the cluster changes in nothing but that it is being filled.
func warmingNow(s *cachev1alpha1.MemcachedStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing)
	return c != nil && (c.Reason == cachev1alpha1.ReasonWarming || c.Reason == cachev1alpha1.ReasonSourceNotThere)
}
