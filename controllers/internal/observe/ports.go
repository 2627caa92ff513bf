package observe

import (
	"k8s.io/utils/ptr"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
)

// Ports returns the ports of the cluster's members.
func (o *Objects) Ports(c *cachev1alpha1.Memcached) build.Ports {
	var n int32
	var template *corev1.PodSpec
	if s := o.StatefulSet; s != nil {
		n, template = ptr.Deref(s.Spec.Replicas, 1), &s.Spec.Template.Spec
	}
	return build.PortsOf(c, n, o.Pods, template)
}
