package build

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// addition has everything that a person may add to a pod.
func addition() cachev1alpha1.PodTemplate {
	return cachev1alpha1.PodTemplate{
		Env:            []corev1.EnvVar{{Name: "TZ", Value: "UTC"}},
		Volumes:        []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings", ReadOnly: true}},
		InitContainers: []corev1.Container{{Name: "before", Image: "init:1"}},
		Containers: []corev1.Container{{
			Name: "shipper", Image: "shipper:1", Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}},
	}
}

func routedAndStored() *cachev1alpha1.Memcached {
	c := withStorage().EveryField().Storage("1Gi").With(discovers).Defaulted().Obj()
	c.Spec.PodTemplate, c.Spec.Drain.PodTemplate = cachev1alpha1.PodTemplate{}, cachev1alpha1.PodTemplate{}
	c.Spec.Router = &cachev1alpha1.RouterSpec{}
	return c
}

// Each kind of pod gets what its own template adds, and no other kind does. The operator's containers,
// volumes and mounts stay as they are, and its main container stays the first one.
func TestAdditionsToAPodStandBesideTheOperatorsOwnParts(t *testing.T) {
	for kind := range kindsOfPods(&cachev1alpha1.MemcachedSpec{Router: &cachev1alpha1.RouterSpec{}}) {
		t.Run(kind, func(t *testing.T) {
			c, given := routedAndStored(), addition()
			before := allPods(c, options)
			template := kindsOfPods(&c.Spec)[kind]
			*template = given
			for other, got := range allPods(c, options) {
				earlier := before[other]
				want := earlier.DeepCopy()
				if kindsOfPods(&c.Spec)[other] == template {
					main := &want.Spec.Containers[0]
					main.Env = append(main.Env, given.Env...)
					main.VolumeMounts = append(main.VolumeMounts, given.VolumeMounts...)
					want.Spec.Volumes = append(want.Spec.Volumes, given.Volumes...)
					want.Spec.InitContainers = append(want.Spec.InitContainers, given.InitContainers...)
					want.Spec.Containers = append(want.Spec.Containers, given.Containers...)
				}
				ignored := []map[string]string{got.Annotations, want.Annotations, got.Labels, want.Labels}
				for _, m := range ignored {
					delete(m, cachev1alpha1.AnnotationDrainer)
				}
				if diff := cmp.Diff(*want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", other, diff)
				}
			}
		})
	}
}

func TestAMemberWithoutStorageHasWhatAPersonAdds(t *testing.T) {
	c := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) { s.PodTemplate = addition() }).Defaulted().Obj()
	pod := allPods(c, options)["members without storage"].Spec
	if len(pod.Containers) != 2 || pod.Containers[0].Name != ContainerMemcached || pod.Containers[0].Env[0].Name != "TZ" || pod.Volumes[0].Name != "settings" {
		t.Errorf("its pod is %+v", pod)
	}
}

// The operator doesn't choose a sidecar's port for its own.
func TestTheOperatorChoosesNoPortOfASidecar(t *testing.T) {
	c := routedAndStored()
	taken := []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{ContainerPort: 11212}, {ContainerPort: 11213}}}}
	c.Spec.Discovery.Port, c.Spec.TLS = 11214, &cachev1alpha1.TLSSpec{SecretName: "tls"}
	c.Spec.PodTemplate.Containers, c.Spec.Router.PodTemplate.InitContainers = taken, taken
	if export, probe, admin := exportPort(c), ProbePort(c), RouterAdminPort(c); export != 11215 || probe != 11216 || admin != 11214 {
		t.Errorf("export %d, probe %d, admin %d", export, probe, admin)
	}
}

// The API refuses each name that the operator gives to a container, a volume, a mount or a port.
func TestEachNameOfTheOperatorsInAPodIsRefused(t *testing.T) {
	text, err := os.ReadFile("../../../api/v1alpha1/memcached_types.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := func(field, words string) []string {
		var found []string
		for line := range strings.SplitSeq(string(text), "\n") {
			if strings.Contains(line, `message="podTemplate.`+field) && strings.Contains(line, words) {
				found = append(found, line)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%s, %s: %d rules", field, words, len(found))
		}
		return found
	}
	names := map[string][]string{}
	note := func(kind, name string) {
		if name != "" && !slices.Contains(names[kind], name) {
			names[kind] = append(names[kind], name)
		}
	}
	c := routedAndStored()
	c.Spec.Auth, c.Spec.Metrics = &cachev1alpha1.AuthSpec{SecretName: "auth"}, &cachev1alpha1.MetricsSpec{}
	for _, pod := range allPods(c, options) {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			note("container", container.Name)
			for _, m := range container.VolumeMounts {
				note("path", m.MountPath)
				note("volume", m.Name)
			}
			for _, p := range container.Ports {
				note("port", p.Name)
			}
		}
		for _, v := range pod.Spec.Volumes {
			note("volume", v.Name)
		}
	}
	for kind, least := range map[string]int{"container": 4, "volume": 9, "path": 9, "port": 4} {
		if len(names[kind]) < least {
			t.Errorf("%s: found %v only", kind, names[kind])
		}
	}
	for kind, all := range map[string][]string{
		"container": slices.Concat(rules("containers", "own containers"), rules("initContainers", "own containers")),
		"volume": slices.Concat(rules("volumes", "own volumes"), rules("volumeMounts", "own volumes"),
			rules("containers", "own volumes"), rules("initContainers", "own volumes")),
		"path": rules("volumeMounts", "nor below"),
		"port": slices.Concat(rules("containers", "a port"), rules("initContainers", "a port")),
	} {
		for _, rule := range all {
			for _, name := range names[kind] {
				if !strings.Contains(rule, "'"+name+"'") {
					t.Errorf("%s %s is not refused by %s", kind, name, rule)
				}
			}
		}
	}
}
