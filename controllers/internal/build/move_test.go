package build

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/ring"
)

func TestMoveAsksTheMemberAndMountsNoVolume(t *testing.T) {
	m := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Routing = cachev1alpha1.RoutingSpec{Client: "pymemcache", KeyPrefix: "app:", ServerName: "shard-{ordinal}"}
	}).Namespace("shop").Storage("128Mi").Defaulted().Obj()
	options := Options{MemcachedImage: "memcached:1", OperatorImage: "operator:1"}
	job := MoveJob(m, options, Move{Claim: "data-cache-1", UID: "uid-1", Ordinal: 1, Target: "4-cafe", Members: 3})
	pod := job.Spec.Template.Spec
	want := []string{"/drainer", "move", "--source=cache-1.cache.shop.svc:11211", "--export-port=11212",
		"--source-id=move/uid-1/4-cafe", "--client=pymemcache", "--unreachable-timeout=2m0s", "--receipt=/dev/termination-log", "--deadline=1h0m0s",
		"--key-prefix=app:", "--scratch=/scratch",
		"--server=shard-0=cache-0.cache.shop.svc:11211", "--server=shard-1=cache-1.cache.shop.svc:11211", "--server=shard-2=cache-2.cache.shop.svc:11211"}
	if diff := cmp.Diff(want, pod.Containers[0].Command); diff != "" {
		t.Errorf("command: -want +got:\n%s", diff)
	}
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.EmptyDir == nil || v.EmptyDir.SizeLimit.Value() != scratchSize }) {
		t.Errorf("volumes %+v", pod.Volumes)
	}
	drain := DrainJob(m, options, nil, "data-cache-1", "uid-1", 1, false).Spec.Template.Spec
	if diff := cmp.Diff(drain.SecurityContext, pod.SecurityContext); diff != "" {
		t.Errorf("pod security: -drain +move:\n%s", diff)
	}
	if diff := cmp.Diff(drain.Containers[0].SecurityContext, pod.Containers[0].SecurityContext); diff != "" {
		t.Errorf("container security: -drain +move:\n%s", diff)
	}
	if job.Labels[cachev1alpha1.LabelComponent] != cachev1alpha1.ComponentMove || len(job.OwnerReferences) != 1 || len(job.Name) > 63 {
		t.Errorf("%+v", job.ObjectMeta)
	}
}

// The drainer sees the annotation of its own pod, and only the operator's word lets it begin.
func TestAPreparedMoveWaitsForItsRing(t *testing.T) {
	m := apitest.MakeMemcached("cache").Namespace("shop").Storage("128Mi").Patience(90 * time.Second).Defaulted().With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Drain.PodTemplate.Annotations = map[string]string{cachev1alpha1.AnnotationBegin: "4-cafe"}
	}).Obj()
	job := MoveJob(m, Options{}, Move{Claim: "data-cache-2", UID: "uid-2", Ordinal: 2, Target: "4-cafe", Members: 2, Prepared: true})
	pod := job.Spec.Template
	if begin, is := pod.Annotations[cachev1alpha1.AnnotationBegin]; !is || begin != "" {
		t.Errorf("annotations %v", pod.Annotations)
	}
	routed := m.DeepCopy()
	routed.Spec.Router = &cachev1alpha1.RouterSpec{}
	if command := MoveJob(routed, Options{}, Move{Claim: "data-cache-2", UID: "uid-2", Ordinal: 2, Target: "4-cafe", Members: 2, Prepared: true}).Spec.Template.Spec.Containers[0].Command; slices.Contains(command, "--follow") {
		t.Errorf("routers need no mover that waits: %q", command)
	}
	drainer := pod.Spec.Containers[0]
	for _, arg := range []string{"--begin-file=/run/begin/ring", "--begin-when=4-cafe", "--begin-within=1m0s", "--follow", "--patience=1m30s", "--deadline=1h2m30s"} {
		if !slices.Contains(drainer.Command, arg) {
			t.Errorf("%s is not in %q", arg, drainer.Command)
		}
	}
	want := corev1.Volume{Name: "begin", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "ring", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['cache.example.com/begin']"}}},
	}}}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return cmp.Equal(v, want) }) {
		t.Errorf("volumes %+v", pod.Spec.Volumes)
	}
	if !slices.ContainsFunc(drainer.VolumeMounts, func(v corev1.VolumeMount) bool { return v.Name == "begin" && v.MountPath == "/run/begin" && v.ReadOnly }) {
		t.Errorf("mounts %+v", drainer.VolumeMounts)
	}
	other := MoveJob(m, Options{}, Move{Claim: "data-cache-2", UID: "uid-2", Ordinal: 2, Target: "4-cafe", Members: 2})
	if begin := other.Spec.Template.Annotations[cachev1alpha1.AnnotationBegin]; begin != "4-cafe" {
		t.Errorf("one that is not prepared has %q", begin)
	}
}

func TestEachRingHasItsMove(t *testing.T) {
	names := map[string]bool{DrainName("data-cache-1", "uid-1"): true}
	for _, target := range []string{"1-a", "2-a", "2-b"} {
		name := MoveName("data-cache-1", "uid-1", target)
		if names[name] {
			t.Errorf("two Jobs are called %s", name)
		}
		names[name] = true
	}
}

func TestListHasTheRecordOfItsRingWhereThereIsStorage(t *testing.T) {
	record := ring.Record{Serial: 3, Ring: RingOf(withStorage().Defaulted().Obj(), 2), From: RingOf(withStorage().Defaulted().Obj(), 1)}
	c := withStorage().Defaulted().Obj()
	kept, err := ring.Parse(ServersConfigMap(c, Servers(c, nil, 2), record).Annotations[cachev1alpha1.AnnotationRing])
	if err != nil || kept != record {
		t.Errorf("%s, %v", kept, err)
	}
	c.Spec.Storage = nil
	if got := ServersConfigMap(c, Servers(c, nil, 2), record).Annotations; len(got) != 0 {
		t.Errorf("without storage: %v", got)
	}
}
