package build

import (
	"cmp"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// A pod gets the settings of the template for its kind; fields that this template leaves out come from the
// members' template (api/v1alpha1, PodTemplate).

// safeToEvict lets the cluster autoscaler remove the node of a pod with an emptyDir. A member saves
// its items on its volume before it ends, and a drainer begins again.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// membersTemplate has a person's settings for members.
func membersTemplate(c *cachev1alpha1.Memcached) *cachev1alpha1.PodTemplate {
	t := c.Spec.PodTemplate
	t.Annotations = withOurs(map[string]string{safeToEvict: "true"}, t.Annotations)
	return &t
}

// routersTemplate has a person's settings for routers.
func routersTemplate(c *cachev1alpha1.Memcached) *cachev1alpha1.PodTemplate {
	t := inherited(&c.Spec.Router.PodTemplate, &c.Spec.PodTemplate)
	t.TerminationGracePeriodSeconds = cmp.Or(t.TerminationGracePeriodSeconds, ptr.To[int64](routerGrace))
	return t
}

// drainersTemplate has a person's settings for the Jobs of drains and moves.
func drainersTemplate(c *cachev1alpha1.Memcached) *cachev1alpha1.PodTemplate {
	t := inherited(&c.Spec.Drain.PodTemplate, &c.Spec.PodTemplate)
	t.Annotations = withOurs(map[string]string{safeToEvict: "true"}, t.Annotations)
	return t
}

// inherited is the given template; fields that it leaves out come from the members' template. Settings of one
// kind of pods (labels, affinity to other pods, spread, time to end, what is added to a pod) are not
// inherited.
func inherited(given, members *cachev1alpha1.PodTemplate) *cachev1alpha1.PodTemplate {
	t := *given
	if t.NodeSelector == nil {
		t.NodeSelector = members.NodeSelector
	}
	if t.Affinity == nil {
		t.Affinity = nodeAffinity(members.Affinity)
	}
	if t.Tolerations == nil {
		t.Tolerations = members.Tolerations
	}
	if t.ImagePullSecrets == nil {
		t.ImagePullSecrets = members.ImagePullSecrets
	}
	t.PriorityClassName = cmp.Or(t.PriorityClassName, members.PriorityClassName)
	t.ServiceAccountName = cmp.Or(t.ServiceAccountName, members.ServiceAccountName)
	t.SchedulerName = cmp.Or(t.SchedulerName, members.SchedulerName)
	t.RuntimeClassName = cmp.Or(t.RuntimeClassName, members.RuntimeClassName)
	t.SecurityContext = inheritedSecurity(t.SecurityContext, members.SecurityContext)
	return &t
}

// inheritedSecurity is the given context with the members' values in fields that it leaves out. A
// template that asks for root doesn't inherit runAsNonRoot.
func inheritedSecurity(given, members *corev1.PodSecurityContext) *corev1.PodSecurityContext {
	if given == nil || members == nil {
		return cmp.Or(given, members)
	}
	all, theirs := given.DeepCopy(), members.DeepCopy()
	if given.RunAsUser != nil && *given.RunAsUser == 0 {
		theirs.RunAsNonRoot = nil
	}
	to, from := reflect.ValueOf(all).Elem(), reflect.ValueOf(theirs).Elem()
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return all
}

// nodeAffinity is the part of the members' affinity that routers and drainers share. The rest
// refers to other members.
func nodeAffinity(members *corev1.Affinity) *corev1.Affinity {
	if members == nil || members.NodeAffinity == nil {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: members.NodeAffinity}
}

// podTemplate is the template of members' or routers' pods; component is for its labels.
func podTemplate(c *cachev1alpha1.Memcached, t *cachev1alpha1.PodTemplate, component string, spec *coreac.PodSpecApplyConfiguration) *coreac.PodTemplateSpecApplyConfiguration {
	return coreac.PodTemplateSpec().
		WithLabels(withOurs(t.Labels, Labels(c, component))).
		WithAnnotations(t.Annotations).
		WithSpec(withAdded(spec, t))
}

// withAdded adds the template's volumes and containers to a pod, and its variables and mounts to the main
// container, which is the first one. Admission has refused names that the operator uses.
func withAdded(spec *coreac.PodSpecApplyConfiguration, t *cachev1alpha1.PodTemplate) *coreac.PodSpecApplyConfiguration {
	main := &spec.Containers[0]
	for i := range t.Env {
		main.WithEnv(convert[coreac.EnvVarApplyConfiguration](&t.Env[i]))
	}
	for i := range t.VolumeMounts {
		main.WithVolumeMounts(convert[coreac.VolumeMountApplyConfiguration](&t.VolumeMounts[i]))
	}
	for i := range t.Volumes {
		spec.WithVolumes(convert[coreac.VolumeApplyConfiguration](&t.Volumes[i]))
	}
	for i := range t.InitContainers {
		spec.WithInitContainers(convert[coreac.ContainerApplyConfiguration](&t.InitContainers[i]))
	}
	for i := range t.Containers {
		spec.WithContainers(convert[coreac.ContainerApplyConfiguration](&t.Containers[i]))
	}
	return spec
}

// opensPort tells whether a container that a person has added has this port.
func opensPort(t *cachev1alpha1.PodTemplate, port int32) bool {
	for _, c := range slices.Concat(t.InitContainers, t.Containers) {
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
			return true
		}
	}
	return false
}

// memberPod is the part of the pod that members with and without storage share.
func memberPod(c *cachev1alpha1.Memcached, o Options) *coreac.PodSpecApplyConfiguration {
	spec := podSpec(membersTemplate(c), Selector(c), corev1.LabelHostname)
	spec.SecurityContext = convert[coreac.PodSecurityContextApplyConfiguration](writingSecurity(&c.Spec.PodTemplate, o))
	spec.TerminationGracePeriodSeconds = graceSeconds(c)
	return spec
}

// podSpec has the settings of the template. Pods with these labels are spread over the topology
// keys in over.
func podSpec(t *cachev1alpha1.PodTemplate, pods map[string]string, over ...string) *coreac.PodSpecApplyConfiguration {
	spec := coreac.PodSpec().
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithNodeSelector(t.NodeSelector).
		WithTopologySpreadConstraints(spread(t, pods, over)...)
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
	for _, s := range t.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	spec.Affinity = convert[coreac.AffinityApplyConfiguration](t.Affinity)
	for i := range t.Tolerations {
		spec.WithTolerations(convert[coreac.TolerationApplyConfiguration](&t.Tolerations[i]))
	}
	return spec
}

// spread returns the spec's constraints, or else one for each topology key in over.
func spread(t *cachev1alpha1.PodTemplate, pods map[string]string, over []string) []*coreac.TopologySpreadConstraintApplyConfiguration {
	selector := metaac.LabelSelector().WithMatchLabels(pods)
	if given := t.TopologySpreadConstraints; len(given) > 0 {
		constraints := make([]*coreac.TopologySpreadConstraintApplyConfiguration, len(given))
		for i := range given {
			constraints[i] = convert[coreac.TopologySpreadConstraintApplyConfiguration](&given[i])
			if given[i].LabelSelector == nil { // without a selector, the scheduler counts no pod
				constraints[i].WithLabelSelector(selector)
			}
		}
		return constraints
	}
	when := corev1.ScheduleAnyway
	switch t.Spread {
	case cachev1alpha1.SpreadOff:
		return nil
	case cachev1alpha1.SpreadHard:
		when = corev1.DoNotSchedule
	}
	constraints := make([]*coreac.TopologySpreadConstraintApplyConfiguration, len(over))
	for i, key := range over {
		constraints[i] = coreac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(key).
			WithWhenUnsatisfiable(when).
			WithLabelSelector(selector)
	}
	return constraints
}

// graceSeconds is the spec's grace period, or else the time that a save may take: half a minute, and the time
// to write all of memory to a slow disk (16 MiB/s); nil if members save nothing, so that the API server sets
// the default.
func graceSeconds(c *cachev1alpha1.Memcached) *int64 {
	if given := c.Spec.PodTemplate.TerminationGracePeriodSeconds; given != nil {
		return given
	}
	switch {
	case c.Spec.Storage == nil:
		return nil
	case c.Spec.InPods():
		return ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds)
	}
	seconds := SaveSeconds(c, contract.SlowSave)
	return &seconds
}

// SaveSeconds is the grace period that a save of all of memory needs at a rate, in bytes a
// second: the time to write it, and half a minute.
func SaveSeconds(c *cachev1alpha1.Memcached, rate int64) int64 { return 30 + Memory(c)/rate }

// GraceSeconds is the grace period of the members of a cluster with storage.
func GraceSeconds(c *cachev1alpha1.Memcached) int64 { return *graceSeconds(c) }

// writingSecurity is the security context of members, which write to a volume.
func writingSecurity(t *cachev1alpha1.PodTemplate, o Options) *corev1.PodSecurityContext {
	security := securityContext(t, o)
	if security.FSGroup == nil && !o.AssignedUsers {
		security.FSGroup = ptr.To[int64](memcachedUID)
	}
	if security.FSGroupChangePolicy == nil {
		security.FSGroupChangePolicy = ptr.To(corev1.FSGroupChangeOnRootMismatch)
	}
	return security
}

// securityContext has the spec's fields, and our default for each field that is left out. Members and
// drainers share it, so that drainers can read the members' files. Root is allowed if the spec asks for it. A
// platform that assigns users gives all pods of a namespace the same user, and refuses any other.
func securityContext(t *cachev1alpha1.PodTemplate, o Options) *corev1.PodSecurityContext {
	security := &corev1.PodSecurityContext{}
	if given := t.SecurityContext; given != nil {
		security = given.DeepCopy()
	}
	if security.RunAsUser == nil && !o.AssignedUsers {
		security.RunAsUser = ptr.To[int64](memcachedUID)
	}
	if security.RunAsGroup == nil && !o.AssignedUsers {
		security.RunAsGroup = ptr.To[int64](memcachedUID)
	}
	if security.RunAsNonRoot == nil && (security.RunAsUser == nil || *security.RunAsUser != 0) {
		security.RunAsNonRoot = ptr.To(true)
	}
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return security
}
