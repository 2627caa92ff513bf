package build

import (
	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

const (
	tlsVolume  = "tls"
	tlsDir     = "/tls"
	authVolume = "auth"
	authDir    = "/auth"
)

// Secured tells whether the members use TLS or logins.
func Secured(c *cachev1alpha1.Memcached) bool { return c.Spec.TLS != nil || c.Spec.Auth != nil }

// connection is how to connect to the members.
func connection(c *cachev1alpha1.Memcached) (conn contract.Connection) {
	if c.Spec.TLS != nil {
		conn.TLSDir = tlsDir
	}
	if c.Spec.Auth != nil {
		conn.AuthFile = authDir + "/" + contract.AuthFileKey
	}
	return conn
}

func verifiesClients(c *cachev1alpha1.Memcached) bool {
	return c.Spec.TLS != nil && c.Spec.TLS.ClientAuth == cachev1alpha1.ClientAuthRequired
}

// secretVolumes are the volumes with the Secrets that connection names, for a pod that serves or one that
// only connects. Secrets are mounted as directories, so that the kubelet updates them, and are optional: if a
// Secret is missing, the drainer or the supervisor reports that, while the kubelet would only wait.
func secretVolumes(c *cachev1alpha1.Memcached, serves bool) (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	add := func(name, dir, secret string, keys ...string) {
		source := &corev1.SecretVolumeSource{SecretName: secret, Optional: ptr.To(true)}
		for _, key := range keys {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: true})
	}
	if c.Spec.TLS != nil {
		keys := []string{contract.CAFile}
		if serves || verifiesClients(c) {
			keys = append(keys, contract.CertFile, contract.KeyFile)
		}
		add(tlsVolume, tlsDir, c.Spec.TLS.SecretName, keys...)
	}
	if c.Spec.Auth != nil {
		add(authVolume, authDir, c.Spec.Auth.SecretName, contract.AuthFileKey)
	}
	return volumes, mounts
}

// withSecrets mounts the Secrets in a member's pod.
func withSecrets(c *cachev1alpha1.Memcached, spec *coreac.PodSpecApplyConfiguration, memcached *coreac.ContainerApplyConfiguration) {
	volumes, mounts := secretVolumes(c, true)
	for i := range volumes {
		spec.WithVolumes(convert[coreac.VolumeApplyConfiguration](&volumes[i]))
		memcached.WithVolumeMounts(convert[coreac.VolumeMountApplyConfiguration](&mounts[i]))
	}
}
