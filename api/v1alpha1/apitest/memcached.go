// Package apitest builds API objects for tests.
package apitest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// MemcachedBuilder builds a Memcached.
type MemcachedBuilder struct{ object cachev1alpha1.Memcached }

// MakeMemcached starts with the fields of the customers' sample: a size and a port.
func MakeMemcached(name string) *MemcachedBuilder {
	b := &MemcachedBuilder{}
	b.object.Name = name
	b.object.Spec.Size = ptr.To[int32](3)
	b.object.Spec.ContainerPort = 11211
	return b
}

// Defaulted adds the API server's defaults, for tests without one.
func (b *MemcachedBuilder) Defaulted() *MemcachedBuilder {
	b.object.UID = types.UID("uid-of-" + b.object.Name)
	s := &b.object.Spec
	if s.Memory == nil {
		s.Memory = ptr.To(resource.MustParse("64Mi"))
	}
	if s.Storage != nil && s.Storage.Mode == "" {
		s.Storage.Mode = cachev1alpha1.StorageSaved
	}
	s.Drain.BackoffLimit = ptr.To(ptr.Deref(s.Drain.BackoffLimit, 6))
	s.Drain.ActiveDeadline = ptr.To(ptr.Deref(s.Drain.ActiveDeadline, metav1.Duration{Duration: time.Hour}))
	s.Drain.Parallelism = max(s.Drain.Parallelism, 1)
	if s.Drain.Policy == "" {
		s.Drain.Policy = cachev1alpha1.PolicyDrain
	}
	if s.Drain.WhenDeleted == "" {
		s.Drain.WhenDeleted = cachev1alpha1.DeletionRetain
	}
	return b
}

// Namespace sets the object's namespace.
func (b *MemcachedBuilder) Namespace(name string) *MemcachedBuilder {
	b.object.Namespace = name
	return b
}

// Size sets the wanted size.
func (b *MemcachedBuilder) Size(n int32) *MemcachedBuilder {
	b.object.Spec.Size = ptr.To(n)
	return b
}

// Memory sets the room for items.
func (b *MemcachedBuilder) Memory(quantity string) *MemcachedBuilder {
	b.object.Spec.Memory = ptr.To(resource.MustParse(quantity))
	return b
}

// Storage gives each member a volume of this size; "0" leaves the size out.
func (b *MemcachedBuilder) Storage(size string) *MemcachedBuilder {
	b.object.Spec.Storage = &cachev1alpha1.StorageSpec{Size: resource.MustParse(size)}
	if b.object.Spec.Routing.Client == "" {
		b.object.Spec.Routing.Client = "libmemcached-ketama-weighted"
	}
	return b
}

// InPods gives the members names, and no volumes.
func (b *MemcachedBuilder) InPods() *MemcachedBuilder {
	b.Storage("0").object.Spec.Storage.Mode = cachev1alpha1.StorageMemory
	return b
}

// Policy sets the policy for the volume of a leaving member.
func (b *MemcachedBuilder) Policy(p cachev1alpha1.DrainPolicy) *MemcachedBuilder {
	b.object.Spec.Drain.Policy = p
	return b
}

// WhenDeleted sets the policy for the claims of a deleted Memcached.
func (b *MemcachedBuilder) WhenDeleted(p cachev1alpha1.DeletionPolicy) *MemcachedBuilder {
	b.object.Spec.Drain.WhenDeleted = p
	return b
}

// OnUnrecoverable sets what happens to a volume that can't be read.
func (b *MemcachedBuilder) OnUnrecoverable(p cachev1alpha1.UnreadablePolicy) *MemcachedBuilder {
	b.object.Spec.Drain.OnUnrecoverable = p
	return b
}

// OnShortage sets what happens to a scale-down whose items don't fit.
func (b *MemcachedBuilder) OnShortage(p cachev1alpha1.ShortagePolicy) *MemcachedBuilder {
	b.object.Spec.Drain.OnShortage = p
	return b
}

// Parallelism sets how many drains run at once.
func (b *MemcachedBuilder) Parallelism(n int32) *MemcachedBuilder {
	b.object.Spec.Drain.Parallelism = n
	return b
}

// Patience sets how long a leaving member waits for its clients.
func (b *MemcachedBuilder) Patience(d time.Duration) *MemcachedBuilder {
	b.object.Spec.Routing.Patience = &metav1.Duration{Duration: d}
	return b
}

// ExtraArgs sets further arguments of memcached.
func (b *MemcachedBuilder) ExtraArgs(args ...string) *MemcachedBuilder {
	b.object.Spec.ExtraArgs = args
	return b
}

// With changes fields that have no method here.
func (b *MemcachedBuilder) With(change func(*cachev1alpha1.MemcachedSpec)) *MemcachedBuilder {
	change(&b.object.Spec)
	return b
}

// EveryField sets every field that a person can set on pods. With each of them, the applied
// configuration could differ from what the API server reports as applied.
func (b *MemcachedBuilder) EveryField() *MemcachedBuilder {
	s := &b.object.Spec
	s.Image = "registry.example.com/memcached:1.6"
	s.MaxItemSize = ptr.To(resource.MustParse("2048Ki"))
	s.Threads, s.MaxConnections = ptr.To[int32](2), ptr.To[int32](2048)
	s.ExtraArgs = []string{"-v", "-o", "modern"}
	s.TLS = &cachev1alpha1.TLSSpec{SecretName: "certificate", ClientAuth: cachev1alpha1.ClientAuthRequired}
	s.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.1"), corev1.ResourceMemory: resource.MustParse("1024Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("2048Mi")},
	}
	s.Drain.Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("0.5Gi")},
	}
	s.Drain.PodTemplate = cachev1alpha1.PodTemplate{
		Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{"sidecar.istio.io/inject": "false"}, ServiceAccountName: "default",
	}
	s.Service = cachev1alpha1.ServiceSpec{Type: cachev1alpha1.ServiceNodePort, Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{"example.com/note": "kept"}}
	s.Drain.RateLimit = &cachev1alpha1.RateLimit{ItemsPerSecond: ptr.To[int64](100000), BytesPerSecond: ptr.To(resource.MustParse("0.5Gi"))}
	s.Drain.SkipExpiringWithin = &metav1.Duration{Duration: 90 * time.Second}
	s.PodTemplate = everyTemplateField()
	s.PodDisruptionBudget.MaxUnavailable = ptr.To(intstr.FromString("34%"))
	peer := networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}},
		PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}},
		}},
	}
	block := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}
	s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{
		Clients: []networkingv1.NetworkPolicyPeer{peer, block}, Monitoring: []networkingv1.NetworkPolicyPeer{peer},
	}
	s.Metrics = &cachev1alpha1.MetricsSpec{Port: 9151}
	return b
}

func everyTemplateField() cachev1alpha1.PodTemplate {
	selector := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"team": "shop"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}}},
	}
	term := corev1.PodAffinityTerm{LabelSelector: selector, TopologyKey: "topology.kubernetes.io/zone"}
	return added(cachev1alpha1.PodTemplate{
		Labels:       map[string]string{"team": "shop"},
		Annotations:  map[string]string{"example.com/note": "kept"},
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}},
				}}},
			},
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}},
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 7, PodAffinityTerm: term},
			}},
		},
		Tolerations: []corev1.Toleration{
			{Key: "dedicated", Value: "cache", Effect: corev1.TaintEffectNoSchedule},
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector},
			{MaxSkew: 2, TopologyKey: "kubernetes.io/hostname", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector},
		},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}, {Name: "another"}},

		Spread:                        cachev1alpha1.SpreadHard,
		TerminationGracePeriodSeconds: ptr.To[int64](77),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](2000), FSGroup: ptr.To[int64](2000), SupplementalGroups: []int64{3, 2},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	})
}

// added is the template with variables, volumes, mounts and containers that a person may add to a pod.
func added(t cachev1alpha1.PodTemplate) cachev1alpha1.PodTemplate {
	t.Env = []corev1.EnvVar{
		{Name: "TZ", Value: "UTC"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}
	t.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "b", Path: "a"}},
		}}},
		{Name: "pod", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			}}},
		}}}},
		{Name: "logs", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(resource.MustParse("0.5Mi")),
		}}},
	}
	t.VolumeMounts = []corev1.VolumeMount{
		{Name: "settings", MountPath: "/etc/settings", ReadOnly: true},
		{Name: "logs", MountPath: "/var/log/cache"},
	}
	t.Containers = []corev1.Container{sidecar("shipper")}
	t.InitContainers = []corev1.Container{{Name: "before", Image: "registry.example.com/init:1", Resources: sidecar("").Resources}, proxy()}
	return t
}

// sidecar has fields that the API server defaults, and quantities that it writes in another way.
func sidecar(name string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "registry.example.com/sidecar:1", Args: []string{"b", "a"},
		Ports:        []corev1.ContainerPort{{Name: "logs", ContainerPort: 8080}, {ContainerPort: 8080, Protocol: corev1.ProtocolUDP}},
		Env:          []corev1.EnvVar{{Name: "LEVEL", Value: "info"}},
		VolumeMounts: []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.25"), corev1.ResourceMemory: resource.MustParse("262144Ki")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("0.5Gi")},
		},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("logs")}}},
	}
}

// proxy is a native sidecar: an init container that keeps running.
func proxy() corev1.Container {
	c := sidecar("proxy")
	c.Ports, c.RestartPolicy = nil, ptr.To(corev1.ContainerRestartPolicyAlways)
	c.ReadinessProbe = nil
	return c
}

// Obj returns a copy of the built object.
func (b *MemcachedBuilder) Obj() *cachev1alpha1.Memcached { return b.object.DeepCopy() }
