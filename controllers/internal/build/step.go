package build

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// With spec.rollout Moved, the supervisor reads in a file whether it is to start empty.
const (
	stepVolume = "step"
	stepDir    = "/step"
	stepFile   = "out"
	stepFlag   = "--" + contract.FlagStep + "="
)

// NoPartition is the merge patch of a StatefulSet that lets all members have its template.
const NoPartition = `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`

// Moved tells whether members step out of the ring before they are replaced: if spec.rollout is Moved, or if
// it is unset and only routers call the members.
func Moved(c *cachev1alpha1.Memcached) bool {
	switch c.Spec.Rollout {
	case cachev1alpha1.RolloutMoved:
		return c.Spec.Storage != nil
	case cachev1alpha1.RolloutRestart:
		return false
	}
	return c.Spec.Storage != nil && RoutersExclusive(c)
}

// tellable tells whether supervisors can be told to start empty. Without volumes they always can: if that
// depended on spec.rollout, a change of it would replace the members, and lose their items.
func tellable(c *cachev1alpha1.Memcached) bool { return Moved(c) || c.Spec.InPods() }

// withStep mounts the pod's annotation that tells the supervisor to start empty.
func withStep(c *cachev1alpha1.Memcached, spec *coreac.PodSpecApplyConfiguration, memcached *coreac.ContainerApplyConfiguration) {
	if !tellable(c) {
		return
	}
	spec.WithVolumes(coreac.Volume().WithName(stepVolume).WithDownwardAPI(coreac.DownwardAPIVolumeSource().
		WithItems(coreac.DownwardAPIVolumeFile().
			WithPath(stepFile).
			WithFieldRef(coreac.ObjectFieldSelector().
				WithAPIVersion("v1").
				WithFieldPath("metadata.annotations['" + cachev1alpha1.AnnotationStepOut + "']")))))
	memcached.WithVolumeMounts(coreac.VolumeMount().WithName(stepVolume).WithMountPath(stepDir).WithReadOnly(true))
}

// Tellable tells whether the pod's supervisor can be told to start empty.
func Tellable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == ContainerMemcached && slices.ContainsFunc(c.Command, func(a string) bool { return strings.HasPrefix(a, stepFlag) })
	})
}

// WithPartition lets members with ordinals below the partition keep their template; 0 changes nothing.
func WithPartition(s *appsac.StatefulSetApplyConfiguration, partition int32) {
	if partition > 0 {
		s.Spec.WithUpdateStrategy(appsac.StatefulSetUpdateStrategy().
			WithType(appsv1.RollingUpdateStatefulSetStrategyType).
			WithRollingUpdate(appsac.RollingUpdateStatefulSetStrategy().WithPartition(partition)))
	}
}
