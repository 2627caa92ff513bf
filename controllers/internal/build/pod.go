package build

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

func podTemplate(c *cachev1alpha1.Memcached) *coreac.PodTemplateSpecApplyConfiguration {
	labels := maps.Clone(c.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, Labels(c, cachev1alpha1.ComponentMember))
	return coreac.PodTemplateSpec().
		WithLabels(labels).
		WithAnnotations(c.Spec.Template.Annotations)
}

// podSpec is what members with and without storage share.
func podSpec(c *cachev1alpha1.Memcached) *coreac.PodSpecApplyConfiguration {
	t := &c.Spec.Template
	spec := coreac.PodSpec().
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithSecurityContext(podSecurity(c)).
		WithNodeSelector(t.NodeSelector).
		WithTopologySpreadConstraints(spread(c)...)
	if t.PriorityClassName != "" {
		spec.WithPriorityClassName(t.PriorityClassName)
	}
	if t.ServiceAccountName != "" {
		spec.WithServiceAccountName(t.ServiceAccountName)
	}
	if t.SchedulerName != "" {
		spec.WithSchedulerName(t.SchedulerName)
	}
	spec.RuntimeClassName = t.RuntimeClassName
	spec.TerminationGracePeriodSeconds = graceSeconds(c)
	for _, s := range t.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	spec.Affinity = convert[coreac.AffinityApplyConfiguration](t.Affinity)
	for i := range t.Tolerations {
		spec.WithTolerations(convert[coreac.TolerationApplyConfiguration](&t.Tolerations[i]))
	}
	return spec
}

// spread is the spec's constraints, or one over the nodes.
func spread(c *cachev1alpha1.Memcached) []*coreac.TopologySpreadConstraintApplyConfiguration {
	members := metaac.LabelSelector().WithMatchLabels(Selector(c))
	if given := c.Spec.Template.TopologySpreadConstraints; len(given) > 0 {
		constraints := make([]*coreac.TopologySpreadConstraintApplyConfiguration, len(given))
		for i := range given {
			constraints[i] = convert[coreac.TopologySpreadConstraintApplyConfiguration](&given[i])
			if given[i].LabelSelector == nil { // without one, the scheduler counts no pod
				constraints[i].WithLabelSelector(members)
			}
		}
		return constraints
	}
	when := corev1.ScheduleAnyway
	switch c.Spec.Template.Spread {
	case cachev1alpha1.SpreadOff:
		return nil
	case cachev1alpha1.SpreadHard:
		when = corev1.DoNotSchedule
	}
	return []*coreac.TopologySpreadConstraintApplyConfiguration{
		coreac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(when).
			WithLabelSelector(members),
	}
}

// graceSeconds is the spec's, or the time that a save may take: half a minute, and the
// time to write all of memory to a slow disk (16 MiB/s). It is nil if nothing is saved:
// then the API server sets the default.
func graceSeconds(c *cachev1alpha1.Memcached) *int64 {
	if given := c.Spec.Template.TerminationGracePeriodSeconds; given != nil {
		return given
	}
	if c.Spec.Storage == nil {
		return nil
	}
	seconds := SaveSeconds(c, contract.SlowSave)
	return &seconds
}

// SaveSeconds is the grace period that a save of all of memory needs at a rate, in bytes a
// second: the time to write it, and half a minute.
func SaveSeconds(c *cachev1alpha1.Memcached, rate int64) int64 { return 30 + Memory(c)/rate }

// GraceSeconds is the grace period of the members of a cluster with storage.
func GraceSeconds(c *cachev1alpha1.Memcached) int64 { return *graceSeconds(c) }

// podSecurity is for members, which write to a volume.
func podSecurity(c *cachev1alpha1.Memcached) *coreac.PodSecurityContextApplyConfiguration {
	security := securityContext(c)
	if security.FSGroup == nil {
		security.FSGroup = ptr.To[int64](memcachedUID)
	}
	if security.FSGroupChangePolicy == nil {
		security.FSGroupChangePolicy = ptr.To(corev1.FSGroupChangeOnRootMismatch)
	}
	return convert[coreac.PodSecurityContextApplyConfiguration](security)
}

// securityContext is shared by members and drainers, so that drainers can read the
// members' files. It has the spec's fields, and our default for each field that is left
// out. Root is allowed if the spec asks for it.
func securityContext(c *cachev1alpha1.Memcached) *corev1.PodSecurityContext {
	security := &corev1.PodSecurityContext{}
	if given := c.Spec.Template.SecurityContext; given != nil {
		security = given.DeepCopy()
	}
	if security.RunAsUser == nil {
		security.RunAsUser = ptr.To[int64](memcachedUID)
	}
	if security.RunAsGroup == nil {
		security.RunAsGroup = ptr.To[int64](memcachedUID)
	}
	if security.RunAsNonRoot == nil && *security.RunAsUser != 0 {
		security.RunAsNonRoot = ptr.To(true)
	}
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return security
}
