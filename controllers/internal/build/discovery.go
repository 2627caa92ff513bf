package build

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

const (
	discoveryPort = "discovery"
	// listDir has the pod's annotation with the clients' list, as a file.
	listVolume = "list"
	listDir    = "/list"
)

// DiscoveryName is the name of the Service of spec.discovery.
func DiscoveryName(cluster string) string { return cluster + "-discovery" }

// Discovery is the Service that applications ask for the list; nil if the spec asks for none. Any
// ready member answers.
func Discovery(c *cachev1alpha1.Memcached) *coreac.ServiceApplyConfiguration {
	if c.Spec.Discovery == nil {
		return nil
	}
	return service(c, DiscoveryName(c.Name), cachev1alpha1.ComponentMember, &c.Spec.Service).
		WithOwnerReferences(owner(c)).
		WithSpec(addressed(&c.Spec.Service).
			WithSelector(Selector(c)).
			WithPorts(coreac.ServicePort().
				WithName(discoveryPort).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(c.Spec.ContainerPort).
				WithTargetPort(intstr.FromString(discoveryPort))))
}

// withList mounts the pod's annotation with the list, for the supervisor. A volume of the ConfigMap would be
// updated a minute late.
func withList(c *cachev1alpha1.Memcached, spec *coreac.PodSpecApplyConfiguration, memcached *coreac.ContainerApplyConfiguration) {
	if c.Spec.Discovery == nil {
		return
	}
	spec.WithVolumes(coreac.Volume().WithName(listVolume).WithDownwardAPI(coreac.DownwardAPIVolumeSource().
		WithItems(coreac.DownwardAPIVolumeFile().
			WithPath(contract.ListFile).
			WithFieldRef(coreac.ObjectFieldSelector().
				WithAPIVersion("v1").
				WithFieldPath("metadata.annotations['" + cachev1alpha1.AnnotationList + "']")))))
	memcached.
		WithVolumeMounts(coreac.VolumeMount().WithName(listVolume).WithMountPath(listDir).WithReadOnly(true)).
		WithPorts(coreac.ContainerPort().
			WithName(discoveryPort).
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(c.Spec.Discovery.Port))
}

// TheList is the list that members tell clients.
func TheList(c *cachev1alpha1.Memcached, ports Ports, version int64, endpoints []Endpoint) *contract.List {
	ports = ports.listed(c)
	l := &contract.List{Version: version}
	for _, e := range endpoints {
		host, port := e.Name+"."+c.Name+"."+c.Namespace+".svc", c.Spec.ContainerPort
		if ordinal, ok := PodOrdinal(c.Name, e.Name); ok {
			host, port = memberHost(c, ordinal), ports.Of(c, ordinal).Memcached
		}
		l.Nodes = append(l.Nodes, contract.Node{Host: host, IP: e.Address, Port: port})
	}
	return l
}

// ListVersion parses the version in an annotation; 0 if there is none, or if no operator can have
// written it by now.
func ListVersion(annotation string, now time.Time) int64 {
	v, err := strconv.ParseInt(annotation, 10, 64)
	if err != nil || v < 1 || v > NextListVersion(0, now.Add(contract.NumbersAhead)) {
		return 0
	}
	return v
}

// NextListVersion is the version of a list that differs from the list before.
func NextListVersion(before int64, now time.Time) int64 {
	return max(1, before+1, contract.NumberAt(now))
}
