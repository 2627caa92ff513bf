package build

import cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"

// exportPort is the port at which a member's supervisor streams items to moves: the first port
// after memcached's that no container of the pod uses.
func exportPort(c *cachev1alpha1.Memcached) int32 { return freePort(c, c.Spec.ContainerPort) }

// ProbePort is the port at which a member's supervisor tells the kubelet whether memcached answers (with
// TLS), and tells the operator whether a member that is out of the ring has started empty: the first free
// port after exportPort; 0 if there is nothing to tell.
func ProbePort(c *cachev1alpha1.Memcached) int32 {
	if c.Spec.TLS == nil && !tellable(c) {
		return 0
	}
	return freePort(c, exportPort(c))
}

// freePort is the first port after the given one that no container of the pod uses.
func freePort(c *cachev1alpha1.Memcached, after int32) int32 {
	const last, first = 65535, 1024
	for port := after + 1; ; port++ {
		if port < first || port > last { // below first, listening may need privileges
			port = first
		}
		discovery := c.Spec.Discovery != nil && port == c.Spec.Discovery.Port
		if port != MetricsPort(c) && !discovery && port != c.Spec.ContainerPort && !opensPort(&c.Spec.PodTemplate, port) {
			return port
		}
	}
}
