package build

import cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"

// exportPort is where a member's supervisor streams items to placements: the first port after
// memcached's that nothing of the pod has.
func exportPort(c *cachev1alpha1.Memcached) int32 {
	const last, first = 65535, 1024
	for port := c.Spec.ContainerPort + 1; ; port++ {
		if port < first || port > last { // below, it may take rights to listen
			port = first
		}
		exporter := c.Spec.Exporter != nil && port == exporterPort(c.Spec.Exporter)
		discovery := c.Spec.Discovery != nil && port == c.Spec.Discovery.Port
		if !exporter && !discovery {
			return port
		}
	}
}
