package build

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

func discovers(s *cachev1alpha1.MemcachedSpec) {
	s.Discovery = &cachev1alpha1.DiscoverySpec{Port: 11213}
}

// The Service, the pod and its supervisor agree on the port and on the file with the list.
func TestSupervisorsAnswerWhereTheServiceLeads(t *testing.T) {
	c := withStorage().With(discovers).Defaulted().Obj()
	service := convert[corev1.Service](Discovery(c))
	pod := convert[corev1.PodTemplateSpec](StatefulSet(c, Options{}, 3).Spec.Template)
	member := pod.Spec.Containers[0]
	port := slices.IndexFunc(member.Ports, func(p corev1.ContainerPort) bool { return p.Name == service.Spec.Ports[0].TargetPort.StrVal })
	if port < 0 || member.Ports[port].ContainerPort != 11213 || !slices.Contains(member.Command, "--discovery=:11213") {
		t.Errorf("the Service leads to %s; ports %v, command %q", service.Spec.Ports[0].TargetPort.StrVal, member.Ports, member.Command)
	}
	volume := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.DownwardAPI != nil })
	mount := slices.IndexFunc(member.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == listVolume })
	if volume < 0 || mount < 0 {
		t.Fatalf("volumes %v, mounts %v", pod.Spec.Volumes, member.VolumeMounts)
	}
	file := pod.Spec.Volumes[volume].DownwardAPI.Items[0]
	if path := member.VolumeMounts[mount].MountPath + "/" + file.Path; !slices.Contains(member.Command, "--list="+path) {
		t.Errorf("the list is at %s, command %q", path, member.Command)
	}
	if want := "metadata.annotations['" + cachev1alpha1.AnnotationList + "']"; file.FieldRef.FieldPath != want {
		t.Errorf("the list is %s, want %s", file.FieldRef.FieldPath, want)
	}
	without := withStorage().Defaulted().Obj()
	if Discovery(without) != nil || slices.ContainsFunc(StatefulSet(without, Options{}, 3).Spec.Template.Spec.Containers[0].Command, func(a string) bool {
		return len(a) > 6 && a[:6] == "--list"
	}) {
		t.Error("there is discovery that the spec does not ask for")
	}
}

func TestSupervisorsReadTheListAsItIsWritten(t *testing.T) {
	c := withStorage().Defaulted().Obj()
	list := TheList(c, nil, 5, []Endpoint{{"cache-0", "10.0.0.1"}, {"cache-1", "fd00::1"}})
	if got, err := contract.ParseList(list.String()); err != nil || got.String() != "5\ncache-0.cache.shop.svc|10.0.0.1|11211 cache-1.cache.shop.svc|fd00::1|11211\n" {
		t.Errorf("%v: %q", err, list)
	}
	full := make([]Endpoint, cachev1alpha1.MaxSize)
	for i := range full {
		full[i] = Endpoint{PodName(string(make([]byte, 52)), int32(i)), "fd00:1111:2222:3333:4444:5555:6666:7777"}
	}
	c.Name, c.Namespace = string(make([]byte, 52)), string(make([]byte, 63))
	const allAnnotations = 256 << 10
	if n := len(TheList(c, nil, 1, full).String()); n > contract.MaxList || n > allAnnotations {
		t.Errorf("the largest list has %d bytes", n)
	}
}

func TestVersionsOfListsOnlyGrow(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for what, test := range map[string]struct {
		annotation string
		want       int64
	}{
		"none":                 {"", 0},
		"no number":            {"x", 0},
		"below nothing":        {"-5", 0},
		"an early one":         {"7", 7},
		"one of just now":      {"126230400", 126230400},
		"one of another clock": {"126234000", 126234000},
		"one of next year":     {"157766400", 0},
		"the largest":          {"9223372036854775807", 0},
	} {
		if got := ListVersion(test.annotation, now); got != test.want {
			t.Errorf("%s: %d, want %d", what, got, test.want)
		}
	}
	last := int64(0)
	for range 3 {
		next := NextListVersion(last, now)
		if next <= last || next > 1<<31-1 {
			t.Errorf("%d after %d", next, last)
		}
		last = next
	}
	if again := NextListVersion(0, now.Add(time.Hour)); again <= last {
		t.Errorf("a list that is made anew has version %d after %d", again, last)
	}
	if first := NextListVersion(0, time.Unix(0, 0)); first != 1 {
		t.Errorf("version %d by a clock that is behind", first)
	}
}
