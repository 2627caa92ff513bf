package build

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// NetworkPolicy lets the cluster's drainers and the clients reach memcached, the clients
// discovery, and monitoring the exporter; nil if none is asked for.
func NetworkPolicy(c *cachev1alpha1.Memcached) *networkingac.NetworkPolicyApplyConfiguration {
	given := c.Spec.NetworkPolicy
	if given == nil {
		return nil
	}
	var clients []*networkingac.NetworkPolicyPeerApplyConfiguration
	for _, component := range []string{cachev1alpha1.ComponentDrainer, cachev1alpha1.ComponentPlacement} {
		drainers := Selector(c)
		drainers[cachev1alpha1.LabelComponent] = component
		clients = append(clients, networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector().WithMatchLabels(drainers)))
	}
	spec := networkingac.NetworkPolicySpec().
		WithPodSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))).
		WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithIngress(ingress(portName, append(clients, peers(given.Clients)...)))
	// A rule without peers would let everybody in.
	if c.Spec.Discovery != nil && len(given.Clients) > 0 {
		spec.WithIngress(ingress(discoveryPort, peers(given.Clients)))
	}
	if c.Spec.Exporter != nil && len(given.Monitoring) > 0 {
		spec.WithIngress(ingress(metricsPort, peers(given.Monitoring)))
	}
	return networkingac.NetworkPolicy(c.Name, c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithSpec(spec)
}

func ingress(port string, from []*networkingac.NetworkPolicyPeerApplyConfiguration) *networkingac.NetworkPolicyIngressRuleApplyConfiguration {
	return networkingac.NetworkPolicyIngressRule().
		WithPorts(networkingac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromString(port))).
		WithFrom(from...)
}

func peers(given []networkingv1.NetworkPolicyPeer) []*networkingac.NetworkPolicyPeerApplyConfiguration {
	out := make([]*networkingac.NetworkPolicyPeerApplyConfiguration, len(given))
	for i := range given {
		out[i] = convert[networkingac.NetworkPolicyPeerApplyConfiguration](&given[i])
	}
	return out
}
