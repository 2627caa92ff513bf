package build

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// memcached counts a plain connection to its TLS port as a failed handshake.
func TestNoProbeOpensATLSPortWithoutAHandshake(t *testing.T) {
	tested := 0
	for _, c := range everyPodSet() {
		c.Spec.TLS = &cachev1alpha1.TLSSpec{SecretName: "tls"}
		if c.Spec.Metrics != nil {
			c.Spec.Metrics.Port = c.Spec.ContainerPort + 2
		}
		for kind, pod := range allPods(c, options) {
			for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				ports := map[int32]bool{}
				for _, port := range container.Ports {
					ports[port.ContainerPort] = true
				}
				for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.StartupProbe, container.LivenessProbe} {
					switch {
					case probe == nil:
					case probe.TCPSocket != nil:
						t.Errorf("%s, %s: a probe connects to port %v", kind, container.Name, &probe.TCPSocket.Port)
					case probe.HTTPGet != nil && container.Name == ContainerMemcached:
						if port := probe.HTTPGet.Port.IntVal; ports[port] || port == exportPort(c) || port == MetricsPort(c) {
							t.Errorf("%s: port %d is another one's, too", kind, port)
						}
						tested++
					}
				}
			}
		}
	}
	if tested == 0 {
		t.Error("no probe was looked at")
	}
}
