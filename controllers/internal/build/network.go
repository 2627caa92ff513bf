package build

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// NetworkPolicy limits who may reach the members; nil if the spec asks for no policy. Drainers, routers and
// clients may reach memcached; clients also discovery; movers the supervisors' export port; monitoring the
// metrics; the operator the supervisors' probe port.
func NetworkPolicy(c *cachev1alpha1.Memcached, o Options, ports Ports) *networkingac.NetworkPolicyApplyConfiguration {
	given := c.Spec.NetworkPolicy
	if given == nil {
		return nil
	}
	own := func(component string) *networkingac.NetworkPolicyPeerApplyConfiguration {
		pods := Selector(c)
		pods[cachev1alpha1.LabelComponent] = component
		return networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector().WithMatchLabels(pods))
	}
	moves := own(cachev1alpha1.ComponentMove)
	clients := []*networkingac.NetworkPolicyPeerApplyConfiguration{own(cachev1alpha1.ComponentDrainer), moves}
	if c.Spec.Router != nil {
		clients = append(clients, own(cachev1alpha1.ComponentRouter))
	}
	spec := networkingac.NetworkPolicySpec().
		WithPodSelector(metaac.LabelSelector().WithMatchLabels(Selector(c))).
		WithPolicyTypes(networkingv1.PolicyTypeIngress).
		WithIngress(ingress(intstr.FromString(portName), append(clients, peers(given.Clients)...)))
	if c.Spec.Storage != nil {
		for _, port := range ports.exports(c) {
			spec.WithIngress(ingress(intstr.FromInt32(port), []*networkingac.NetworkPolicyPeerApplyConfiguration{moves}))
		}
	}
	// A rule without peers would allow every client.
	if c.Spec.Discovery != nil && len(given.Clients) > 0 {
		spec.WithIngress(ingress(intstr.FromString(discoveryPort), peers(given.Clients)))
	}
	if c.Spec.Metrics != nil && len(given.Monitoring) > 0 {
		spec.WithIngress(ingress(intstr.FromString(metricsPort), peers(given.Monitoring)))
	}
	if port := ProbePort(c); port != 0 && o.OperatorNamespace != "" {
		spec.WithIngress(ingress(intstr.FromInt32(port), []*networkingac.NetworkPolicyPeerApplyConfiguration{operatorPods(o)}))
	}
	return networkingac.NetworkPolicy(c.Name, c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentMember)).
		WithOwnerReferences(owner(c)).
		WithSpec(spec)
}

// operatorPods are the pods of the operator's namespace.
func operatorPods(o Options) *networkingac.NetworkPolicyPeerApplyConfiguration {
	return networkingac.NetworkPolicyPeer().WithNamespaceSelector(metaac.LabelSelector().
		WithMatchLabels(map[string]string{corev1.LabelMetadataName: o.OperatorNamespace}))
}

func ingress(port intstr.IntOrString, from []*networkingac.NetworkPolicyPeerApplyConfiguration) *networkingac.NetworkPolicyIngressRuleApplyConfiguration {
	return networkingac.NetworkPolicyIngressRule().
		WithPorts(networkingac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(port)).
		WithFrom(from...)
}

func peers(given []networkingv1.NetworkPolicyPeer) []*networkingac.NetworkPolicyPeerApplyConfiguration {
	out := make([]*networkingac.NetworkPolicyPeerApplyConfiguration, len(given))
	for i := range given {
		out[i] = convert[networkingac.NetworkPolicyPeerApplyConfiguration](&given[i])
	}
	return out
}
