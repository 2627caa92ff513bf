package build

import cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"

// exportPort is where a member's supervisor streams items to moves: the first port after
// memcached's that nothing of the pod has.
func exportPort(c *cachev1alpha1.Memcached) int32 { return freePort(c, c.Spec.ContainerPort) }

// ProbePort is where a member's supervisor tells the kubelet whether memcached answers, if memcached takes
// TLS: the first port after that for items; 0 is none.
func ProbePort(c *cachev1alpha1.Memcached) int32 {
	if c.Spec.TLS == nil {
		return 0
	}
	return freePort(c, exportPort(c))
}

// freePort is the first one after the other that nothing of the pod has.
func freePort(c *cachev1alpha1.Memcached, after int32) int32 {
	const last, first = 65535, 1024
	for port := after + 1; ; port++ {
		if port < first || port > last { // below, it may take rights to listen
			port = first
		}
		exporter := c.Spec.Exporter != nil && port == exporterPort(c.Spec.Exporter)
		discovery := c.Spec.Discovery != nil && port == c.Spec.Discovery.Port
		if !exporter && !discovery && port != c.Spec.ContainerPort && !opensPort(&c.Spec.PodTemplate, port) {
			return port
		}
	}
}
