package build

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

var options = Options{MemcachedImage: "memcached:1", OperatorImage: "operator:1"}

func withStorage() *apitest.MemcachedBuilder {
	return apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi")
}

func TestArgumentsFollowFromTheSpec(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*cachev1alpha1.MemcachedSpec)
		want   []string
	}{
		"the defaults": {func(*cachev1alpha1.MemcachedSpec) {}, []string{"memcached", "-m", "64", "-p", "11211", "-U", "0"}},
		"all of them": {
			func(s *cachev1alpha1.MemcachedSpec) {
				s.Memory, s.MaxItemSize = ptr.To(resource.MustParse("1Gi")), ptr.To(resource.MustParse("2Mi"))
				s.Threads, s.MaxConnections, s.ContainerPort = ptr.To[int32](8), ptr.To[int32](5000), 11300
				s.ExtraArgs = []string{"-o", "hash_algorithm=xxh3"}
			},
			[]string{
				"memcached", "-m", "1024", "-p", "11300", "-U", "0", "-I", "2097152", "-t", "8", "-c", "5000",
				"-o", "hash_algorithm=xxh3",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := withStorage().With(test.change).Defaulted().Obj()
			plain := Deployment(c, options).Spec.Template.Spec.Containers[0]
			if diff := cmp.Diff(test.want, plain.Command); diff != "" {
				t.Errorf("Deployment: -want +got:\n%s", diff)
			}
			serve := []string{"/supervisor/drainer", "supervise", "--dir=/data", "--memory-dir=/memory", "--port=" + test.want[4], "--export-port=" + fmt.Sprint(exportPort(c)), "--termination-log=/dev/termination-log", "--grace-period=" + (time.Duration(*graceSeconds(c)) * time.Second).String(), "--"}
			member := StatefulSet(c, options, 3).Spec.Template.Spec.Containers[0]
			if diff := cmp.Diff(append(serve, test.want...), member.Command); diff != "" {
				t.Errorf("StatefulSet: -want +got:\n%s", diff)
			}
		})
	}
}

func TestClaimsAreBornHeldAndSurviveTheStatefulSet(t *testing.T) {
	spec := StatefulSet(withStorage().Defaulted().Obj(), options, 3).Spec
	claim := spec.VolumeClaimTemplates[0]
	if diff := cmp.Diff([]string{cachev1alpha1.ClaimFinalizer}, claim.Finalizers); diff != "" {
		t.Errorf("finalizers: -want +got:\n%s", diff)
	}
	if claim.Labels[cachev1alpha1.LabelInstance] != "cache" || claim.Labels[cachev1alpha1.LabelManagedBy] != cachev1alpha1.ManagedBy {
		t.Errorf("the operator would not see a claim with labels %v", claim.Labels)
	}
	retention := spec.PersistentVolumeClaimRetentionPolicy
	if *retention.WhenDeleted != "Retain" || *retention.WhenScaled != "Retain" {
		t.Errorf("the StatefulSet controller would delete claims: %v", retention)
	}
}

// TestMembersAreReadyWhenTheyAreWarm, if they have storage.
func TestMembersAreReadyWhenTheyAreWarm(t *testing.T) {
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) { s.ContainerPort = 11300 }).Defaulted().Obj()
	probe := StatefulSet(c, options, 1).Spec.Template.Spec.Containers[0].StartupProbe
	if probe == nil || probe.Exec == nil {
		t.Fatalf("a member with storage has %+v", probe)
	}
	if diff := cmp.Diff([]string{"/supervisor/drainer", "ready", "--port=11300"}, probe.Exec.Command); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if probe := Deployment(c, options).Spec.Template.Spec.Containers[0].StartupProbe; probe != nil {
		t.Errorf("a member without storage has %+v", probe)
	}
}

// TestSavedMembersHaveTheirFileInMemory, with a bound, in memcached's container and in the init
// container that looks at it. The volume of the claim stays mounted at its path.
func TestSavedMembersHaveTheirFileInMemory(t *testing.T) {
	c := withStorage().Memory("96Mi").Defaulted().Obj()
	pod := StatefulSet(c, options, 3).Spec.Template.Spec
	i := slices.IndexFunc(pod.Volumes, func(v coreac.VolumeApplyConfiguration) bool { return *v.Name == "memory" })
	if i < 0 || *pod.Volumes[i].EmptyDir.Medium != "Memory" || pod.Volumes[i].EmptyDir.SizeLimit.Value() != (96+16)<<20 {
		t.Fatalf("volumes %+v", pod.Volumes)
	}
	for _, container := range []coreac.ContainerApplyConfiguration{pod.Containers[0], pod.InitContainers[0]} {
		if !slices.Contains(container.Command, "--memory-dir=/memory") || !slices.Contains(container.Command, "--dir=/data") {
			t.Errorf("%s runs %v", *container.Name, container.Command)
		}
		for _, path := range []string{"/memory", "/data"} {
			if !slices.ContainsFunc(container.VolumeMounts, func(m coreac.VolumeMountApplyConfiguration) bool { return *m.MountPath == path }) {
				t.Errorf("%s does not mount %s", *container.Name, path)
			}
		}
	}
	c.Spec.Storage.Mode = cachev1alpha1.StorageMapped
	if mapped := StatefulSet(c, options, 3).Spec.Template.Spec; len(mapped.Volumes) != len(pod.Volumes)-1 {
		t.Errorf("a mapped member has the volumes %+v", mapped.Volumes)
	}
}

func TestSelectorIsTheSameForEverySpec(t *testing.T) {
	want := map[string]string{
		"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "cache", "app.kubernetes.io/component": "member",
	}
	for name, b := range map[string]*apitest.MemcachedBuilder{"the least": withStorage(), "every field": withStorage().EveryField()} {
		c := b.Defaulted().Obj()
		set := StatefulSet(c, options, 1).Spec
		if diff := cmp.Diff(want, set.Selector.MatchLabels); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		for key, value := range want {
			if set.Template.Labels[key] != value {
				t.Errorf("%s: pods have %s=%s", name, key, set.Template.Labels[key])
			}
		}
		if diff := cmp.Diff(want, Service(c).Spec.Selector); diff != "" {
			t.Errorf("%s: Service: -want +got:\n%s", name, diff)
		}
	}
}

func TestLabelsOfTheTemplateNeverWinOverOurs(t *testing.T) {
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.PodTemplate.Labels = map[string]string{cachev1alpha1.LabelInstance: "another", "team": "shop"}
	}).Defaulted().Obj()
	labels := StatefulSet(c, options, 1).Spec.Template.Labels
	if labels[cachev1alpha1.LabelInstance] != "cache" || labels["team"] != "shop" {
		t.Errorf("labels %v", labels)
	}
}

func TestImageDefaultsToTheOperators(t *testing.T) {
	image := func(b *apitest.MemcachedBuilder) string {
		return *StatefulSet(b.Defaulted().Obj(), options, 1).Spec.Template.Spec.Containers[0].Image
	}
	if got := image(withStorage()); got != "memcached:1" {
		t.Errorf("default image %q", got)
	}
	if got := image(withStorage().EveryField()); got != "registry.example.com/memcached:1.6" {
		t.Errorf("spec's image %q", got)
	}
}

func TestGraceIsEnoughToSaveAllOfMemory(t *testing.T) {
	for memory, want := range map[string]int64{"64Mi": 34, "1Gi": 94, "64Gi": 4126} {
		c := withStorage().Memory(memory).Defaulted().Obj()
		if got := *StatefulSet(c, options, 1).Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("%s: %d s, want %d", memory, got, want)
		}
	}
}

func TestTheSupervisorKnowsTheGracePeriod(t *testing.T) {
	for grace, want := range map[int64]string{0: "34s", 1: "1s", 60: "1m0s", 86400: "24h0m0s"} {
		c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
			if grace > 0 {
				s.PodTemplate.TerminationGracePeriodSeconds = &grace
			}
		}).Defaulted().Obj()
		if command := StatefulSet(c, options, 1).Spec.Template.Spec.Containers[0].Command; !slices.Contains(command, "--grace-period="+want) {
			t.Errorf("%d s: %q, want %s", grace, command, want)
		}
	}
}

func TestMemoryRequestFollowsFromMemoryUnlessAPersonSetsResources(t *testing.T) {
	request := func(b *apitest.MemcachedBuilder) string {
		r := StatefulSet(b.Defaulted().Obj(), options, 1).Spec.Template.Spec.Containers[0].Resources
		return r.Requests.Memory().String()
	}
	if got := request(withStorage().Memory("1000Mi")); got != "1132Mi" {
		t.Errorf("derived request %s", got)
	}
	if got := request(withStorage().EveryField()); got != "1Gi" {
		t.Errorf("the person's request became %s", got)
	}
}

// A limit of CPU alone removes no request for memory, on any container.
func TestAPersonsResourcesReplaceOurDefaultsOneByOne(t *testing.T) {
	quantities := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if q != "" {
				all[name] = resource.MustParse(q)
			}
		}
		return all
	}
	for name, test := range map[string]struct{ given, want corev1.ResourceRequirements }{
		"nothing":           {corev1.ResourceRequirements{}, corev1.ResourceRequirements{Requests: quantities("50m", "102Mi")}},
		"a limit of CPU":    {corev1.ResourceRequirements{Limits: quantities("1", "")}, corev1.ResourceRequirements{Limits: quantities("1", ""), Requests: quantities("", "102Mi")}},
		"a limit of memory": {corev1.ResourceRequirements{Limits: quantities("", "1Gi")}, corev1.ResourceRequirements{Limits: quantities("", "1Gi"), Requests: quantities("50m", "")}},
		"a request":         {corev1.ResourceRequirements{Requests: quantities("2", "")}, corev1.ResourceRequirements{Requests: quantities("2", "102Mi")}},
	} {
		c := withStorage().Defaulted().Obj()
		c.Spec.Resources = test.given
		got := StatefulSet(c, options, 1).Spec.Template.Spec.Containers[0].Resources
		for kind, of := range map[string]struct {
			got  *corev1.ResourceList
			want corev1.ResourceList
		}{"requests": {got.Requests, test.want.Requests}, "limits": {got.Limits, test.want.Limits}} {
			if diff := cmp.Diff(of.want, ptr.Deref(of.got, nil)); diff != "" {
				t.Errorf("%s, %s: -want +got:\n%s", name, kind, diff)
			}
		}
	}
	c := withStorage().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Drain.Resources.Limits = quantities("1", "")
	}).Defaulted().Obj()
	if got := drainResources(c).Requests[corev1.ResourceMemory]; got.String() != "64Mi" {
		t.Errorf("a drainer asks for %s", got.String())
	}
}

func TestVolumeSizeFollowsFromMemoryUnlessAPersonSetsIt(t *testing.T) {
	for want, b := range map[string]*apitest.MemcachedBuilder{
		"200Mi":  withStorage().Storage("0"),
		"2192Mi": withStorage().Storage("0").Memory("1001Mi"), // an eighth is rounded up
		"500Mi":  withStorage().Storage("500Mi").Memory("400Mi"),
	} {
		set := StatefulSet(b.Defaulted().Obj(), options, 1)
		if got := (*set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests)[corev1.ResourceStorage]; got.String() != want {
			t.Errorf("a volume of %s, want %s", got.String(), want)
		}
	}
}

func TestEachMemberHasItsVolumeAndTheSupervisor(t *testing.T) {
	pod := StatefulSet(withStorage().Defaulted().Obj(), options, 1).Spec.Template.Spec
	writable := func(m coreac.VolumeMountApplyConfiguration) bool { return !ptr.Deref(m.ReadOnly, false) }
	mounts := pod.Containers[0].VolumeMounts
	if i := slices.IndexFunc(mounts, func(m coreac.VolumeMountApplyConfiguration) bool { return *m.MountPath == "/data" }); i < 0 || !writable(mounts[i]) {
		t.Errorf("mounts of memcached: %v", mounts)
	}
	if i := slices.IndexFunc(mounts, func(m coreac.VolumeMountApplyConfiguration) bool { return *m.MountPath == "/supervisor" }); i < 0 || writable(mounts[i]) {
		t.Errorf("mounts of memcached: %v", mounts)
	}
	install := pod.InitContainers[0]
	want := []string{"/drainer", "install", "--dir=/data", "--memory-dir=/memory", "--termination-log=/dev/termination-log", "/supervisor", "memcached", "-m", "64", "-p", "11211", "-U", "0"}
	if diff := cmp.Diff(want, install.Command); diff != "" {
		t.Errorf("install: -want +got:\n%s", diff)
	}
	if i := slices.IndexFunc(install.VolumeMounts, func(m coreac.VolumeMountApplyConfiguration) bool { return *m.MountPath == "/data" }); i < 0 || writable(install.VolumeMounts[i]) {
		t.Errorf("mounts of install: %v", install.VolumeMounts)
	}
}

// Status quotes the last words of a member's containers.
func TestAMembersContainersLeaveTheirLastWords(t *testing.T) {
	c := apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi").Defaulted().Obj()
	c.Spec.Metrics = &cachev1alpha1.MetricsSpec{}
	for name, template := range map[string]*coreac.PodTemplateSpecApplyConfiguration{
		"with storage": StatefulSet(c, options, 1).Spec.Template, "without": Deployment(c, options).Spec.Template,
	} {
		all := slices.Concat(template.Spec.Containers, template.Spec.InitContainers)
		if len(all) < 2 {
			t.Fatalf("%s: %d containers", name, len(all))
		}
		for _, container := range all {
			if p := container.TerminationMessagePolicy; p == nil || *p != corev1.TerminationMessageFallbackToLogsOnError {
				t.Errorf("%s, container %s: %v", name, *container.Name, p)
			}
		}
	}
}

// memcached's file is in memory, and counts as memory of the pod. With a smaller request, the pod could be
// evicted for memory that the spec asks for.
func TestTheDefaultRequestCoversTheFile(t *testing.T) {
	for _, memory := range []string{"64Mi", "256Mi", "3584Mi", "64Gi"} {
		c := withStorage().Memory(memory).Defaulted().Obj()
		pod := StatefulSet(c, options, 1).Spec.Template.Spec
		file := Memory(c) / 10 // the hash table
		for _, v := range pod.Volumes {
			if *v.Name == memoryVolume {
				file += v.EmptyDir.SizeLimit.Value()
			}
		}
		request := (*pod.Containers[0].Resources.Requests)[corev1.ResourceMemory]
		if request.Value() < file || file <= Memory(c) {
			t.Errorf("memory %s: %d bytes are requested, and the file and the hash table take %d", memory, request.Value(), file)
		}
	}
}
