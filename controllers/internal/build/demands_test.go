package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// allPods returns the templates of all pods that the operator creates for a cluster, by the objects
// that have them.
func allPods(c *cachev1alpha1.Memcached, o Options) map[string]corev1.PodTemplateSpec {
	pods := map[string]corev1.PodTemplateSpec{}
	if c.Spec.Storage == nil {
		pods["members without storage"] = *convert[corev1.PodTemplateSpec](Deployment(c, o).Spec.Template)
	} else {
		pods["members"] = *convert[corev1.PodTemplateSpec](StatefulSet(c, o, 3).Spec.Template)
		pods["drains"] = DrainJob(c, o, nil, "data-cache-2", "uid", 2, false).Spec.Template
		pods["moves"] = MoveJob(c, o, Move{Claim: "data-cache-0", UID: "uid", Target: "1", Members: 3, Prepared: true}).Spec.Template
		if c.Spec.WarmFrom != nil {
			pods["warmings"] = WarmJob(c, o, Warm{Target: "warm-1", Members: 3, From: WarmFrom(c)}).Spec.Template
			pods["warmings from claims"] = WarmJob(c, o, Warm{Target: "warm-1", Members: 3, Claim: "backup-0"}).Spec.Template
		}
	}
	if c.Spec.Router != nil {
		pods["routers"] = *convert[corev1.PodTemplateSpec](Routers(c, o).Spec.Template)
	}
	return pods
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// everyPodSet are clusters that together have every kind of pod and container, with resources wherever
// the spec takes them.
func everyPodSet() []*cachev1alpha1.Memcached {
	all := corev1.ResourceRequirements{Requests: quantities("250m", "256Mi"), Limits: quantities("1", "512Mi")}
	set := func(s *cachev1alpha1.MemcachedSpec) {
		s.Resources, s.Drain.Resources = all, all
		if s.Storage != nil {
			s.Router = &cachev1alpha1.RouterSpec{Resources: all}
			s.WarmFrom = &cachev1alpha1.WarmSource{Servers: []string{"old:11211"}, TLS: &cachev1alpha1.WarmTLS{SecretName: "old"}, Auth: &cachev1alpha1.AuthSpec{SecretName: "old"}}
		}
	}
	return []*cachev1alpha1.Memcached{
		apitest.MakeMemcached("cache").Namespace("shop").EveryField().With(set).Defaulted().Obj(),
		apitest.MakeMemcached("cache").Namespace("shop").EveryField().Storage("1Gi").With(set).Defaulted().Obj(),
		apitest.MakeMemcached("cache").Namespace("shop").EveryField().Storage("1Gi").With(set).
			With(func(s *cachev1alpha1.MemcachedSpec) { s.Storage.Mode = cachev1alpha1.StorageMapped }).Defaulted().Obj(),
	}
}

// A ResourceQuota with limits refuses a pod if one of its containers has no limit. A LimitRange refuses a pod
// if a container has less than the minimum.
func TestEveryContainerHasTheRequestsAndLimitsOfTheSpec(t *testing.T) {
	least := quantities("250m", "256Mi")
	for _, c := range everyPodSet() {
		for kind, pod := range allPods(c, options) {
			for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				for _, list := range []corev1.ResourceList{container.Resources.Requests, container.Resources.Limits} {
					for name, minimum := range least {
						if got, ok := list[name]; !ok || got.Cmp(minimum) < 0 {
							t.Errorf("%s, container %s: %s is %v in %v, want %v at least", kind, container.Name, name, got.String(), list, minimum.String())
						}
					}
				}
			}
		}
	}
}

// The cluster autoscaler keeps the node of a pod with an emptyDir on disk, unless an annotation
// says that the pod may be evicted. A move and a warming keep a list of keys there, and begins again elsewhere.
func TestNoPodKeepsItsNode(t *testing.T) {
	for _, c := range everyPodSet() {
		for kind, pod := range allPods(c, options) {
			for _, v := range pod.Spec.Volumes {
				if v.EmptyDir == nil {
					continue
				}
				if v.EmptyDir.Medium != corev1.StorageMediumMemory && kind != "moves" && !strings.HasPrefix(kind, "warmings") {
					t.Errorf("%s: volume %s is on the node's disk", kind, v.Name)
				}
				if v.EmptyDir.SizeLimit == nil {
					t.Errorf("%s: volume %s has no bound", kind, v.Name)
				}
				if got := pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"]; got != "true" {
					t.Errorf("%s have an emptyDir, and are safe to evict: %q", kind, got)
				}
			}
		}
	}
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.PodTemplate.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
	}).Defaulted().Obj()
	if got := StatefulSet(c, options, 1).Spec.Template.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"]; got != "false" {
		t.Errorf("a person says false, members have %q", got)
	}
}

// kindsOfPods returns the pod templates of a spec, by the kind of pod.
func kindsOfPods(s *cachev1alpha1.MemcachedSpec) map[string]*cachev1alpha1.PodTemplate {
	return map[string]*cachev1alpha1.PodTemplate{
		"members": &s.PodTemplate, "routers": &s.Router.PodTemplate, "drains": &s.Drain.PodTemplate, "moves": &s.Drain.PodTemplate,
	}
}

// A person can set everything that a cluster's admission may ask of a pod, on every kind of pod and
// on the object that creates it.
func TestEachKindOfPodHasTheSettingsOfItsOwnTemplate(t *testing.T) {
	affinity := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}}},
	}}}
	for kind := range kindsOfPods(&cachev1alpha1.MemcachedSpec{Router: &cachev1alpha1.RouterSpec{}}) {
		t.Run(kind, func(t *testing.T) {
			c := withStorage().EveryField().Storage("1Gi").Defaulted().Obj()
			c.Spec.Router = &cachev1alpha1.RouterSpec{}
			given := cachev1alpha1.PodTemplate{
				Labels:       map[string]string{"cost-center": "7", cachev1alpha1.LabelInstance: "mine"},
				Annotations:  map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "11212"},
				NodeSelector: map[string]string{"pool": "own"},
				Affinity:     affinity,
				Tolerations:  []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}},

				PriorityClassName: "own", ServiceAccountName: "own", SchedulerName: "own", RuntimeClassName: ptr.To("own"),
				ImagePullSecrets:              []corev1.LocalObjectReference{{Name: "own"}},
				TerminationGracePeriodSeconds: ptr.To[int64](17),
				SecurityContext:               &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1717)},
			}
			*kindsOfPods(&c.Spec)[kind] = given
			pod := allPods(c, options)[kind]
			labels, annotations := withOurs(pod.Labels, nil), withOurs(pod.Annotations, nil)
			if labels["cost-center"] != "7" || labels[cachev1alpha1.LabelInstance] != "cache" {
				t.Errorf("labels %v", labels)
			}
			if annotations["traffic.sidecar.istio.io/excludeInboundPorts"] != "11212" {
				t.Errorf("annotations %v", annotations)
			}
			got := cachev1alpha1.PodTemplate{
				Labels: given.Labels, Annotations: given.Annotations,
				NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations,
				PriorityClassName: pod.Spec.PriorityClassName, ServiceAccountName: pod.Spec.ServiceAccountName, SchedulerName: pod.Spec.SchedulerName,
				RuntimeClassName: pod.Spec.RuntimeClassName, ImagePullSecrets: pod.Spec.ImagePullSecrets,
				TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
				SecurityContext:               &corev1.PodSecurityContext{RunAsUser: pod.Spec.SecurityContext.RunAsUser},
			}
			if diff := cmp.Diff(given, got); diff != "" {
				t.Errorf("-given +got:\n%s", diff)
			}
		})
	}
}

// Fields that the templates of routers and drainers leave out have the members' values, except for
// those about one kind of pods. An empty field is not left out.
func TestFieldsThatATemplateLeavesOutAreTheMembers(t *testing.T) {
	c := withStorage().EveryField().Storage("1Gi").Defaulted().Obj()
	c.Spec.Router = &cachev1alpha1.RouterSpec{}
	c.Spec.PodTemplate.PriorityClassName, c.Spec.PodTemplate.RuntimeClassName = "important", ptr.To("gvisor")
	pods := allPods(c, options)
	for _, kind := range []string{"routers", "drains", "moves"} {
		got, members := pods[kind], pods["members"]
		for what, pair := range map[string][2]any{
			"nodeSelector": {members.Spec.NodeSelector, got.Spec.NodeSelector}, "tolerations": {members.Spec.Tolerations, got.Spec.Tolerations},
			"priority": {members.Spec.PriorityClassName, got.Spec.PriorityClassName}, "runtime": {members.Spec.RuntimeClassName, got.Spec.RuntimeClassName},
			"pull secrets": {members.Spec.ImagePullSecrets, got.Spec.ImagePullSecrets}, "user": {members.Spec.SecurityContext.RunAsUser, got.Spec.SecurityContext.RunAsUser},
			"affinity": {&corev1.Affinity{NodeAffinity: members.Spec.Affinity.NodeAffinity}, got.Spec.Affinity},
		} {
			if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
				t.Errorf("%s: %s: -members +got:\n%s", kind, what, diff)
			}
		}
		if _, has := got.Annotations["example.com/note"]; has {
			t.Errorf("%s have the members' annotations", kind)
		}
	}
	empty := cachev1alpha1.PodTemplate{NodeSelector: map[string]string{}, Tolerations: []corev1.Toleration{}, Affinity: &corev1.Affinity{}}
	c.Spec.Router.PodTemplate, c.Spec.Drain.PodTemplate = empty, empty
	for kind, pod := range allPods(c, options) {
		if a := pod.Spec.Affinity; kind != "members" && (len(pod.Spec.NodeSelector)+len(pod.Spec.Tolerations) > 0 || a != nil && a.NodeAffinity != nil) {
			t.Errorf("%s: an empty field was taken for one that is left out: %+v", kind, pod.Spec)
		}
	}
}

func TestServicesAndWorkloadsHaveAPersonsLabelsAndAnnotations(t *testing.T) {
	c := withStorage().EveryField().Storage("1Gi").With(discovers).Defaulted().Obj()
	settings := cachev1alpha1.ServiceSpec{
		Labels:      map[string]string{"cost-center": "7", cachev1alpha1.LabelInstance: "mine"},
		Annotations: map[string]string{"example.com/mesh": "off"},
	}
	own := cachev1alpha1.PodTemplate{Labels: settings.Labels, Annotations: settings.Annotations}
	c.Spec.Service, c.Spec.Router = settings, &cachev1alpha1.RouterSpec{Service: settings, PodTemplate: own}
	c.Spec.PodTemplate.Labels, c.Spec.PodTemplate.Annotations, c.Spec.Drain.PodTemplate = own.Labels, own.Annotations, own
	plain := c.DeepCopy()
	plain.Spec.Storage, plain.Spec.Router, plain.Spec.Discovery = nil, nil, nil
	job := DrainJob(c, options, nil, "data-cache-2", "uid", 2, false)
	member := MemberService(c, nil, 0, "2026-01-01T00:00:00Z")
	for what, meta := range map[string]*metaac.ObjectMetaApplyConfiguration{
		"members' Service": Service(c).ObjectMetaApplyConfiguration, "list's Service": ListService(c).ObjectMetaApplyConfiguration,
		"discovery's Service": Discovery(c).ObjectMetaApplyConfiguration, "a member's Service": member.ObjectMetaApplyConfiguration,
		"routers' Service": RouterService(c).ObjectMetaApplyConfiguration, "routers": Routers(c, options).ObjectMetaApplyConfiguration,
		"StatefulSet": StatefulSet(c, options, 3).ObjectMetaApplyConfiguration, "Deployment": Deployment(plain, options).ObjectMetaApplyConfiguration,
		"Job": {Labels: job.Labels, Annotations: job.Annotations},
	} {
		if meta.Labels["cost-center"] != "7" || meta.Labels[cachev1alpha1.LabelInstance] != "cache" || meta.Annotations["example.com/mesh"] != "off" {
			t.Errorf("%s: labels %v, annotations %v", what, meta.Labels, meta.Annotations)
		}
	}
	if member.Annotations[cachev1alpha1.AnnotationUnlisted] == "" {
		t.Error("a member's Service has lost the operator's annotation")
	}
}

// The Services with an address have the type that a person gives; the headless ones stay headless.
func TestServicesWithAnAddressHaveAPersonsType(t *testing.T) {
	c := withStorage().With(discovers).Defaulted().Obj()
	c.Spec.Router = &cachev1alpha1.RouterSpec{}
	services := func() map[string]*coreac.ServiceSpecApplyConfiguration {
		return map[string]*coreac.ServiceSpecApplyConfiguration{
			"members": Service(c).Spec, "list": ListService(c).Spec, "discovery": Discovery(c).Spec,
			"member": MemberService(c, nil, 0, "").Spec, "router": RouterService(c).Spec,
		}
	}
	for what, spec := range services() {
		if spec.Type != nil {
			t.Errorf("%s: without a word of a person, the type is %s", what, *spec.Type)
		}
	}
	c.Spec.Service.Type, c.Spec.Router.Service.Type = cachev1alpha1.ServiceNodePort, cachev1alpha1.ServiceLoadBalancer
	want := map[string]corev1.ServiceType{
		"discovery": corev1.ServiceTypeNodePort, "member": corev1.ServiceTypeNodePort, "router": corev1.ServiceTypeLoadBalancer,
	}
	for what, spec := range services() {
		if got := ptr.Deref(spec.Type, ""); got != want[what] {
			t.Errorf("%s: type %q, want %q", what, got, want[what])
		}
		if headless := ptr.Deref(spec.ClusterIP, "") == corev1.ClusterIPNone; headless != (want[what] == "") {
			t.Errorf("%s: headless: %v", what, headless)
		}
	}
}

// OpenShift gives the pods of a namespace their user and groups, and refuses any other.
func TestWhereThePlatformAssignsUsersThePodsNameNone(t *testing.T) {
	o := options
	o.AssignedUsers = true
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{} }).Defaulted().Obj()
	for kind, pod := range allPods(c, o) {
		s := pod.Spec.SecurityContext
		if s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || len(s.SupplementalGroups) > 0 {
			t.Errorf("%s: %+v", kind, s)
		}
		if !ptr.Deref(s.RunAsNonRoot, false) || s.SeccompProfile == nil {
			t.Errorf("%s: what Pod Security asks for was left out, too: %+v", kind, s)
		}
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if container.SecurityContext.RunAsUser != nil {
				t.Errorf("%s: container %s names a user", kind, container.Name)
			}
		}
	}
	c.Spec.PodTemplate.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](5), FSGroup: ptr.To[int64](6)}
	if s := allPods(c, o)["members"].Spec.SecurityContext; *s.RunAsUser != 5 || *s.FSGroup != 6 {
		t.Errorf("a person's user was left out: %+v", s)
	}
}
