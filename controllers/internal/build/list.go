package build

import (
	"fmt"
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

// The clients' list as DNS records consists of a headless Service without a selector, and of one
// EndpointSlice. One slice is enough: the API allows 1,000 endpoints in it, and a cluster has at most MaxSize
// members.

// ListName is the name of the Service whose records are the clients' list, and of its
// EndpointSlice.
func ListName(cluster string) string { return cluster + "-list" }

// Endpoint is a member on the clients' list.
type Endpoint struct {
	// Name is the name of the member's pod or, without storage, of its place.
	Name string
	// Address is an IP address.
	Address string
}

// Endpoints returns the first n members, in ring order, with the addresses of their pods, all of
// one family. A member whose pod has no address, because it is being replaced, keeps its last
// address, so a restart changes no ring. A member that never had an address is left out.
func Endpoints(c *cachev1alpha1.Memcached, n int32, pods []corev1.Pod, before []Endpoint) []Endpoint {
	addresses := listedAddresses(c, n, pods, before)
	for _, e := range before {
		if len(addresses[e.Name]) == 0 {
			addresses[e.Name] = []string{e.Address}
		}
	}
	endpoints, _ := ofOneFamily(c.Name, n, addresses, before)
	return endpoints
}

// LeftOut returns the members among the first n whose pods have an address, but none of the list's
// family, so that the list lacks them.
func LeftOut(c *cachev1alpha1.Memcached, n int32, pods []corev1.Pod, listed []Endpoint) []string {
	addresses := listedAddresses(c, n, pods, listed)
	var out []string
	for i := range n {
		name := PodName(c.Name, i)
		if len(addresses[name]) > 0 && !slices.ContainsFunc(listed, func(e Endpoint) bool { return e.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}

// podAddresses returns the addresses of each pod that an EndpointSlice accepts, with status.podIP
// first.
func podAddresses(pods []corev1.Pod) map[string][]string {
	addresses := make(map[string][]string, len(pods))
	for i := range pods {
		s := &pods[i].Status
		all := []string{s.PodIP}
		for _, ip := range s.PodIPs {
			all = append(all, ip.IP)
		}
		addresses[pods[i].Name] = slices.DeleteFunc(all, func(ip string) bool { return !publishable(ip) })
	}
	return addresses
}

// ofOneFamily returns the first n members that have addresses, each with its first address of the
// family that most of them have. If both families have as many members, the list keeps its family;
// a new list takes the family of the first member's first address. without has the members that
// have no address of that family.
func ofOneFamily(cluster string, n int32, addresses map[string][]string, before []Endpoint) (endpoints []Endpoint, without []string) {
	var families []discoveryv1.AddressType
	if len(before) > 0 {
		families = append(families, AddressType(before))
	}
	for i := range n {
		if all := addresses[PodName(cluster, i)]; len(all) > 0 {
			families = append(families, addressType(all[0]))
			break
		}
	}
	for _, family := range append(families, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6) {
		if has, lacks := of(family, cluster, n, addresses); len(has) > len(endpoints) {
			endpoints, without = has, lacks
		}
	}
	return endpoints, without
}

// of returns the members among the first n that have an address of the family, and those that have
// only other addresses.
func of(family discoveryv1.AddressType, cluster string, n int32, addresses map[string][]string) (has []Endpoint, lacks []string) {
	for i := range n {
		name := PodName(cluster, i)
		all := addresses[name]
		j := slices.IndexFunc(all, func(ip string) bool { return addressType(ip) == family })
		switch {
		case j >= 0:
			has = append(has, Endpoint{name, all[j]})
		case len(all) > 0:
			lacks = append(lacks, name)
		}
	}
	return has, lacks
}

// publishable tells whether an EndpointSlice accepts the address.
func publishable(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// InDNS tells whether the slice belongs to the list's Service.
func InDNS(cluster string, slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelServiceName] == ListName(cluster)
}

// EndpointsOf returns the members on a slice that the operator wrote.
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

// AddressType is the type of the first endpoint's address. A slice can't change its type.
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
	return service(c, ListName(c.Name), cachev1alpha1.ComponentMember, &c.Spec.Service).
		WithOwnerReferences(owner(c)).
		WithSpec(coreac.ServiceSpec().
			WithClusterIP(corev1.ClusterIPNone).
			WithPorts(coreac.ServicePort().
				WithName(portName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(c.Spec.ContainerPort).
				WithTargetPort(intstr.FromInt32(c.Spec.ContainerPort))))
}

// ListPorts are the ports of the list as a slice has them: one port, and a fingerprint of the
// members that have other ports.
type ListPorts struct {
	Port   int32
	Others string
}

// ListPortsOf returns the ports of the endpoints: the slice has the port that most endpoints have; among equally
// frequent ports, the one that comes first.
func ListPortsOf(c *cachev1alpha1.Memcached, ports Ports, endpoints []Endpoint) ListPorts {
	ports = ports.listed(c)
	own, count := make([]int32, len(endpoints)), map[int32]int{}
	most := ListPorts{Port: c.Spec.ContainerPort}
	for i, e := range endpoints {
		own[i] = c.Spec.ContainerPort
		if ordinal, ok := PodOrdinal(c.Name, e.Name); ok {
			own[i] = ports.Of(c, ordinal).Memcached
		}
		count[own[i]]++
	}
	for i, port := range own {
		if i == 0 || count[port] > count[most.Port] {
			most.Port = port
		}
	}
	if count[most.Port] < len(endpoints) {
		most.Others = hash(fmt.Sprint(own))
	}
	return most
}

// ListPortsIn returns the ports that a slice has.
func ListPortsIn(slice *discoveryv1.EndpointSlice) ListPorts {
	p := ListPorts{Others: slice.Annotations[cachev1alpha1.AnnotationListPorts]}
	if len(slice.Ports) == 1 && slice.Ports[0].Port != nil {
		p.Port = *slice.Ports[0].Port
	}
	return p
}

// ListSlice is the EndpointSlice of the list. Every endpoint counts as ready, because DNS names no
// others, and a member stays on the list while it restarts. inDNS: the slice belongs to the list's
// Service. If that Service is another owner's, the slice still keeps the list and its version, and
// the members tell clients the list.
func ListSlice(c *cachev1alpha1.Memcached, ports ListPorts, endpoints []Endpoint, kind discoveryv1.AddressType, version int64, inDNS bool) *discoveryac.EndpointSliceApplyConfiguration {
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
			WithPort(ports.Port))
	if ports.Others != "" {
		slice.WithAnnotations(map[string]string{cachev1alpha1.AnnotationListPorts: ports.Others})
	}
	for _, e := range endpoints {
		slice.WithEndpoints(discoveryac.Endpoint().
			WithHostname(e.Name).
			WithAddresses(e.Address).
			WithConditions(discoveryac.EndpointConditions().WithReady(true)))
	}
	return slice
}
