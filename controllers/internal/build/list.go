package build

import (
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// The clients' list as DNS records: a headless Service without a selector, and one
// EndpointSlice, because the API allows 1,000 endpoints in one and a cluster has at most
// MaxSize members.

// ListName is the name of the Service whose records are the clients' list, and of its
// EndpointSlice.
func ListName(cluster string) string { return cluster + "-list" }

// Endpoint is a member on the clients' list.
type Endpoint struct {
	// Name of its pod.
	Name string
	// Address is an IP address.
	Address string
}

// Endpoints are the first n members, in ring order, with the addresses of their pods. A
// member whose pod has no address, because it is being replaced, keeps the one that it
// had: a restart changes no ring. A member that never had one is left out.
func Endpoints(cluster string, n int32, pods []corev1.Pod, before []Endpoint) []Endpoint {
	addresses := make(map[string]string, n)
	for _, e := range before {
		addresses[e.Name] = e.Address
	}
	for i := range pods {
		if ip := pods[i].Status.PodIP; publishable(ip) {
			addresses[pods[i].Name] = ip
		}
	}
	var endpoints []Endpoint
	for i := range n {
		name := PodName(cluster, i)
		if address, known := addresses[name]; known {
			endpoints = append(endpoints, Endpoint{name, address})
		}
	}
	return ofOneType(endpoints)
}

// ofOneType are the endpoints of the first one's type.
func ofOneType(endpoints []Endpoint) []Endpoint {
	kind := AddressType(endpoints)
	return slices.DeleteFunc(endpoints, func(e Endpoint) bool { return addressType(e.Address) != kind })
}

// publishable tells whether an EndpointSlice may have the address.
func publishable(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// InDNS tells whether the slice is that of the list's Service.
func InDNS(cluster string, slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelServiceName] == ListName(cluster)
}

// EndpointsOf are the members on a slice that the operator wrote.
func EndpointsOf(slice *discoveryv1.EndpointSlice) []Endpoint {
	if slice == nil {
		return nil
	}
	var endpoints []Endpoint
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; e.Hostname != nil && len(e.Addresses) == 1 && publishable(e.Addresses[0]) {
			endpoints = append(endpoints, Endpoint{*e.Hostname, e.Addresses[0]})
		}
	}
	return endpoints
}

// AddressType of the endpoints: that of the first. A slice can't change its type.
func AddressType(endpoints []Endpoint) discoveryv1.AddressType {
	if len(endpoints) == 0 {
		return discoveryv1.AddressTypeIPv4
	}
	return addressType(endpoints[0].Address)
}

func addressType(ip string) discoveryv1.AddressType {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// ListService is the headless Service of the list.
func ListService(c *cachev1alpha1.Memcached) *coreac.ServiceApplyConfiguration {
	return coreac.Service(ListName(c.Name), c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithSpec(coreac.ServiceSpec().
			WithClusterIP(corev1.ClusterIPNone).
			WithPorts(coreac.ServicePort().
				WithName(portName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(c.Spec.ContainerPort).
				WithTargetPort(intstr.FromInt32(c.Spec.ContainerPort))))
}

// ListSlice is the EndpointSlice of the list. Every endpoint counts as ready, because DNS
// names no others, and a member stays on the list while it restarts. inDNS: it is the
// Service's. If that is somebody else's, the slice keeps the list and its version all the
// same: the members tell clients what it has.
func ListSlice(c *cachev1alpha1.Memcached, endpoints []Endpoint, kind discoveryv1.AddressType, version int64, inDNS bool) *discoveryac.EndpointSliceApplyConfiguration {
	labels := Labels(c, cachev1alpha1.ComponentMember)
	if inDNS {
		labels[discoveryv1.LabelServiceName] = ListName(c.Name)
	}
	labels[discoveryv1.LabelManagedBy] = cachev1alpha1.ManagedBy
	slice := discoveryac.EndpointSlice(ListName(c.Name), c.Namespace).
		WithLabels(labels).
		WithAnnotations(map[string]string{cachev1alpha1.AnnotationListVersion: strconv.FormatInt(version, 10)}).
		WithOwnerReferences(owner(c)).
		WithAddressType(kind).
		WithPorts(discoveryac.EndpointPort().
			WithName(portName).
			WithProtocol(corev1.ProtocolTCP).
			WithPort(c.Spec.ContainerPort))
	for _, e := range endpoints {
		slice.WithEndpoints(discoveryac.Endpoint().
			WithHostname(e.Name).
			WithAddresses(e.Address).
			WithConditions(discoveryac.EndpointConditions().WithReady(true)))
	}
	return slice
}
