package build

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// With routing.addresses: Stable each member has a Service with its own address, which stays when
// the pod is replaced. The clients' list names these Services.

const (
	memberInfix = "-member-"
	exportName  = "export"
)

// MemberServiceName is the name of the Service of one member.
func MemberServiceName(cluster string, ordinal int32) string {
	return fmt.Sprintf("%s%s%d", cluster, memberInfix, ordinal)
}

// MemberServiceOrdinal is the inverse of MemberServiceName; false for any name that
// MemberServiceName doesn't return.
func MemberServiceOrdinal(cluster, service string) (int32, bool) {
	return ordinalAfter(cluster+memberInfix, service)
}

// Stable tells whether the clients' list names the members' Services.
func Stable(c *cachev1alpha1.Memcached) bool {
	return c.Spec.Storage != nil && c.Spec.Routing.Addresses == cachev1alpha1.AddressesStable
}

// memberHost is the DNS name of a member on the clients' list.
func memberHost(c *cachev1alpha1.Memcached, ordinal int32) string {
	switch {
	case Stable(c):
		return serviceHost(c, ordinal)
	case c.Spec.Storage == nil:
		return placeHost(c, ordinal)
	}
	return podHost(c, ordinal)
}

// placeHost is the DNS name of a place on the list of a cluster without storage.
func placeHost(c *cachev1alpha1.Memcached, ordinal int32) string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(c.Name, ordinal), ListName(c.Name), c.Namespace)
}

// serviceHost is the DNS name of a member's Service.
func serviceHost(c *cachev1alpha1.Memcached, ordinal int32) string {
	return fmt.Sprintf("%s.%s.svc", MemberServiceName(c.Name, ordinal), c.Namespace)
}

// podHost is the DNS name of a member's pod.
func podHost(c *cachev1alpha1.Memcached, ordinal int32) string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(c.Name, ordinal), c.Name, c.Namespace)
}

// serverName is the name by which clients call the members, with {ordinal} in place of the number;
// empty for the names of their pods.
func serverName(c *cachev1alpha1.Memcached) string {
	if given := c.Spec.Routing.ServerName; given != "" || !Stable(c) {
		return given
	}
	return strings.Replace(memberHost(c, 0), memberInfix+"0", memberInfix+"{ordinal}", 1)
}

// reached is the address at which drainers reach a member.
func reached(c *cachev1alpha1.Memcached, ports Ports, ordinal int32) string {
	stable := RingOf(c, 0).Stable
	return fmt.Sprintf("%s:%d", reachedHost(c, ordinal, stable), ports.dialled(c, ordinal, stable))
}

// reachedHost is the DNS name at which drainers reach a member: the pod's. If clients hash the
// addresses of Services (stable), it is the Service's, because drainers hash the address that they
// connect to.
func reachedHost(c *cachev1alpha1.Memcached, ordinal int32, stable bool) string {
	if stable {
		return serviceHost(c, ordinal)
	}
	return podHost(c, ordinal)
}

// MemberService is the Service of one member. The Service also routes to a pod that isn't ready: drainers wait for
// survivors, and no other pod could answer. unlisted is the value of AnnotationUnlisted; empty for none.
func MemberService(c *cachev1alpha1.Memcached, ports Ports, ordinal int32, unlisted string) *coreac.ServiceApplyConfiguration {
	selector := Selector(c)
	selector[appsv1.StatefulSetPodNameLabel] = PodName(c.Name, ordinal)
	service := service(c, MemberServiceName(c.Name, ordinal), cachev1alpha1.ComponentMember, &c.Spec.Service).
		WithOwnerReferences(owner(c)).
		WithSpec(addressed(&c.Spec.Service).
			WithSelector(selector).
			WithPublishNotReadyAddresses(true).
			WithPorts(
				coreac.ServicePort().
					WithName(portName).
					WithProtocol(corev1.ProtocolTCP).
					WithPort(c.Spec.ContainerPort).
					WithTargetPort(intstr.FromString(portName)),
				coreac.ServicePort().
					WithName(exportName).
					WithProtocol(corev1.ProtocolTCP).
					WithPort(exportPort(c)).
					WithTargetPort(intstr.FromInt32(ports.Of(c, ordinal).Export))))
	if unlisted != "" {
		service.WithAnnotations(map[string]string{cachev1alpha1.AnnotationUnlisted: unlisted})
	}
	return service
}

// StableEndpoints returns the first n members, in ring order, with the addresses of their Services.
// Until all of these addresses are known and of one family, the list stays as before.
func StableEndpoints(cluster string, n int32, services map[int32]corev1.Service, before []Endpoint) []Endpoint {
	addresses, all := serviceAddresses(cluster, n, services)
	if endpoints, without := ofOneFamily(cluster, n, addresses, before); all && len(without) == 0 {
		return endpoints
	}
	return before
}

// ServicesOfOtherFamily returns the members among the first n whose Services have no address of the family
// that most have, once all Services have an address. Because of these members, the list stays as before.
func ServicesOfOtherFamily(cluster string, n int32, services map[int32]corev1.Service) []string {
	addresses, all := serviceAddresses(cluster, n, services)
	if _, without := ofOneFamily(cluster, n, addresses, nil); all {
		return without
	}
	return nil
}

// serviceAddresses returns the addresses of the members' Services, by the name of the pod, and
// whether all Services have one.
func serviceAddresses(cluster string, n int32, services map[int32]corev1.Service) (addresses map[string][]string, all bool) {
	addresses, all = make(map[string][]string, n), true
	for i := range n {
		service := services[i]
		ips := append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...)
		ips = slices.DeleteFunc(ips, func(ip string) bool { return !publishable(ip) })
		addresses[PodName(cluster, i)] = ips
		all = all && len(ips) > 0
	}
	return addresses, all
}
