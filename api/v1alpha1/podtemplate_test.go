package v1alpha1_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// Additions of a person to a pod leave the operator's own part of it alone.
func TestTheOperatorsOwnPartsOfAPodAreRefusedByName(t *testing.T) {
	server := theAPIServer(t)
	sidecar := func(change func(*corev1.Container)) cachev1alpha1.PodTemplate {
		c := corev1.Container{Name: "shipper", Image: "shipper"}
		change(&c)
		return cachev1alpha1.PodTemplate{Containers: []corev1.Container{c}}
	}
	port := func(p corev1.ContainerPort) cachev1alpha1.PodTemplate {
		return sidecar(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{p} })
	}
	mount := func(volume, path string) cachev1alpha1.PodTemplate {
		return cachev1alpha1.PodTemplate{VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: path}}}
	}
	volume := func(v corev1.Volume) cachev1alpha1.PodTemplate {
		return cachev1alpha1.PodTemplate{Volumes: []corev1.Volume{v}}
	}
	claim := func(name string) cachev1alpha1.PodTemplate {
		return volume(corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	const (
		owned   = "mountPath must not be one of the operator's own"
		clean   = "mountPath must be an absolute path"
		members = "a container's port must not be containerPort, metrics.port or discovery.port"
		routers = "router.podTemplate: a container's port must not be containerPort"
	)
	kinds := map[string]func(*cachev1alpha1.MemcachedSpec) *cachev1alpha1.PodTemplate{
		"podTemplate":        func(s *cachev1alpha1.MemcachedSpec) *cachev1alpha1.PodTemplate { return &s.PodTemplate },
		"router.podTemplate": func(s *cachev1alpha1.MemcachedSpec) *cachev1alpha1.PodTemplate { return &s.Router.PodTemplate },
		"drain.podTemplate":  func(s *cachev1alpha1.MemcachedSpec) *cachev1alpha1.PodTemplate { return &s.Drain.PodTemplate },
	}
	for what, test := range map[string]struct {
		template cachev1alpha1.PodTemplate
		// want by kind; "" is for all that have no want of their own. An empty want is accepted.
		want map[string]string
	}{
		"a container's name":       {sidecar(func(c *corev1.Container) { c.Name = "memcached" }), map[string]string{"": "podTemplate.containers must not have a name"}},
		"an init container's name": {cachev1alpha1.PodTemplate{InitContainers: []corev1.Container{{Name: "drainer"}}}, map[string]string{"": "podTemplate.initContainers must not have a name"}},
		"a volume's name":          {volume(corev1.Volume{Name: "data"}), map[string]string{"": "podTemplate.volumes must not have a name"}},
		"a mount of a volume":      {mount("data", "/elsewhere"), map[string]string{"": "podTemplate.volumeMounts must not mount"}},
		"a sidecar's mount of a volume": {sidecar(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/elsewhere"}}
		}), map[string]string{"": "podTemplate.containers must not mount"}},
		"a sidecar's device of a volume": {sidecar(func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
		}), map[string]string{"": "podTemplate.containers must not mount"}},
		"an init container's device of a volume": {cachev1alpha1.PodTemplate{InitContainers: []corev1.Container{{
			Name: "shipper", VolumeDevices: []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}},
		}}}, map[string]string{"": "podTemplate.initContainers must not mount"}},
		"a sidecar's own device": {sidecar(func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "own", DevicePath: "/dev/own"}}
		}), nil},
		"a directory":           {mount("own", "/data"), map[string]string{"": owned}},
		"below it":              {mount("own", "/data/own"), map[string]string{"": owned}},
		"above it":              {mount("own", "/run"), map[string]string{"": owned}},
		"another way there":     {mount("own", "/own/../data"), map[string]string{"": clean}},
		"a path of no root":     {mount("own", "data"), map[string]string{"": clean}},
		"the root":              {mount("own", "/"), map[string]string{"": clean}},
		"a path like it":        {mount("own", "/database"), map[string]string{"": ""}},
		"a hidden directory":    {mount("own", "/etc/.own"), map[string]string{"": ""}},
		"a port's name":         {port(corev1.ContainerPort{Name: "metrics", ContainerPort: 8080}), map[string]string{"": "a port must not have a name"}},
		"memcached's port":      {port(corev1.ContainerPort{ContainerPort: 11211}), map[string]string{"podTemplate": members, "router.podTemplate": routers}},
		"the port of metrics":   {port(corev1.ContainerPort{ContainerPort: 9150}), map[string]string{"podTemplate": members}},
		"discovery's port":      {port(corev1.ContainerPort{ContainerPort: 11212}), map[string]string{"podTemplate": members}},
		"a member's claim":      {claim("data-cache-3"), map[string]string{"": "podTemplate.volumes must not have a claim of the members"}},
		"a claim of another's":  {claim("data-cacher-3"), map[string]string{"": ""}},
		"a variable twice":      {cachev1alpha1.PodTemplate{Env: []corev1.EnvVar{{Name: "A"}, {Name: "A"}}}, map[string]string{"": "Duplicate value"}},
		"a container that fits": {sidecar(func(*corev1.Container) {}), map[string]string{"": ""}},
	} {
		for kind, of := range kinds {
			t.Run(what+", "+kind, func(t *testing.T) {
				object := apitest.MakeMemcached("cache").Storage("1Gi").With(func(s *cachev1alpha1.MemcachedSpec) {
					s.Router, s.Metrics, s.Discovery = &cachev1alpha1.RouterSpec{}, &cachev1alpha1.MetricsSpec{}, &cachev1alpha1.DiscoverySpec{}
					*of(s) = test.template
				}).Obj()
				want, own := test.want[kind]
				if !own {
					want = test.want[""]
				}
				server.wants(t, server.of(t, object), nil, want)
			})
		}
	}
}
