package build

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// The routers of spec.router are a Deployment, its Service, its PodDisruptionBudget, its
// NetworkPolicy, and the ConfigMap with the table of the rings. All have the same name.

const (
	// ContainerRouter is the router's container in its pod.
	ContainerRouter = "router"
	// RouterTableKey is the key of the ConfigMap that has the table.
	RouterTableKey = "table.json"

	adminPortName = "admin"
	tableVolume   = "table"
	tableDir      = "/table"
	// routerGrace is longer than the router's --linger, --spread and --drain-timeout together, in seconds.
	routerGrace = 30
)

// RouterName is the name of all objects that belong to the routers.
func RouterName(cluster string) string { return cluster + "-router" }

// RoutersExclusive tells whether only routers call the members.
func RoutersExclusive(c *cachev1alpha1.Memcached) bool {
	return c.Spec.Router != nil && c.Spec.Router.Exclusive
}

// RouterAddress is the host:port at which applications reach the routers.
func RouterAddress(c *cachev1alpha1.Memcached) string {
	return fmt.Sprintf("%s.%s.svc:%d", RouterName(c.Name), c.Namespace, c.Spec.ContainerPort)
}

func routerSelector(c *cachev1alpha1.Memcached) map[string]string {
	selector := Selector(c)
	selector[cachev1alpha1.LabelComponent] = cachev1alpha1.ComponentRouter
	return selector
}

// RouterTable is the table that routers are told in a state. before is the table that they were
// told last, or nil. In the states stable and prepare the new ring has the first n members, without the
// one that is out (ring.Ring); in the others the rings stay. Each member is dialled at its own port. RouterTable returns nil if the
// state can't follow the state before. The caller sets Acknowledged and Signer.
func RouterTable(c *cachev1alpha1.Memcached, ports Ports, state contract.RingState, n, out int32, before *contract.RingTable, number int64) *contract.RingTable {
	t := &contract.RingTable{Number: number, State: state, Shared: state != contract.RingStable && !RoutersExclusive(c), Key: string(c.UID)}
	switch {
	case before == nil:
	case before.Number == number: // the table is the same
		t.Before, t.Acknowledged, t.Signer = before.Before, before.Acknowledged, before.Signer
	default:
		t.Before = before.Number
	}
	next := RingOf(c, n)
	next.Out = out
	ring := contract.Ring{Client: next.Client, KeyPrefix: next.KeyPrefix, Servers: namedServers(c, ports, next), Out: out}
	if before != nil && before.State != contract.RingStable && t.Shared != before.Shared && state != contract.RingStable {
		t.Shared = before.Shared // the change keeps the value that it began with
	}
	switch {
	case state == contract.RingStable:
		t.New = ring
		return t
	case before == nil || before.State != state && before.State+1 != state:
		return nil
	case before.State == contract.RingStable:
		t.Old, t.New = ports.redial(c, &before.New), ring
	case state == contract.RingPrepare:
		t.Old, t.New = ports.redial(c, before.Old), ring
	default:
		t.Old, t.New = ports.redial(c, before.Old), *ports.redial(c, &before.New)
	}
	// The table has no end of validity: a router that missed a change learns of it from the
	// members, and an operator that is down stops no router.
	return t
}

// RouterTableIn parses the table in a ConfigMap; nil if it can't be parsed. Any client may have
// written it, so a table also counts as nil if it names other servers than the cluster's
// members, in order.
func RouterTableIn(c *cachev1alpha1.Memcached, config *corev1.ConfigMap) *contract.RingTable {
	t := parsedTable(config)
	if t == nil || !ourServers(c, t.New.Servers) || t.Old != nil && !ourServers(c, t.Old.Servers) {
		return nil
	}
	return t
}

func parsedTable(config *corev1.ConfigMap) *contract.RingTable {
	if config == nil {
		return nil
	}
	t, err := contract.ParseRingTable([]byte(config.Data[RouterTableKey]))
	if err != nil {
		return nil
	}
	return t
}

// ourServers tells whether these are members of the cluster, in their order, under any of their names
// and ports.
func ourServers(c *cachev1alpha1.Memcached, servers []string) bool {
	last := int32(-1)
	for _, text := range servers {
		_, ordinal, is := ourServer(c, text)
		if !is || ordinal <= last {
			return false
		}
		last = ordinal
	}
	return true
}

// ourServer returns the server that a table names, and its ordinal; false if it is no member of the cluster.
func ourServer(c *cachev1alpha1.Memcached, text string) (s routing.Server, ordinal int32, is bool) {
	s, err := routing.ParseServer(text)
	if err != nil {
		return s, 0, false
	}
	label, _, _ := strings.Cut(s.Host, ".")
	if ordinal, is = PodOrdinal(c.Name, label); is && s.Host == podHost(c, ordinal) {
		return s, ordinal, true
	}
	ordinal, is = MemberServiceOrdinal(c.Name, label)
	return s, ordinal, is && s.Host == serviceHost(c, ordinal)
}

// RouterRing is the known ring that routers were told of, with as many members as they were told
// of. If none of the known rings matches, it returns a ring that equals no other.
func RouterRing(c *cachev1alpha1.Memcached, told *contract.Ring, known ...ring.Ring) ring.Ring {
	if told == nil {
		return ring.Ring{}
	}
	n := int32(len(told.Servers))
	if told.Out > 0 && told.Out <= n+1 {
		n++
	}
	for _, r := range known {
		r = r.Of(n)
		r.Out = told.Out
		if r.Client == told.Client && r.KeyPrefix == told.KeyPrefix && sameServers(told, RingServers(c, r)) {
			return r
		}
	}
	const noPort = -1
	return ring.Ring{Size: n, Port: noPort}
}

// sameServers tells whether clients call the servers of the told ring by these names. The ports at
// which they are dialled don't matter.
func sameServers(told *contract.Ring, servers []routing.Server) bool {
	return slices.EqualFunc(told.Servers, servers, func(text string, want routing.Server) bool {
		s, err := routing.ParseServer(text)
		return err == nil && s.Host == want.Host && s.Called(told.Client) == want.Called(told.Client)
	})
}

// RouterTableText is the table as the text of its file.
func RouterTableText(t *contract.RingTable) string {
	text, _ := json.Marshal(t) // a table can always be marshalled
	return string(text) + "\n"
}

// RouterTableNumber is the number of the table in a ConfigMap; 0 if there is none, or if no
// operator can have written it by now. The number is made like the version of a list.
func RouterTableNumber(config *corev1.ConfigMap, now time.Time) int64 {
	t := parsedTable(config)
	if t == nil {
		return 0
	}
	return ListVersion(strconv.FormatInt(t.Number, 10), now)
}

// RouterConfigMap is the ConfigMap with the table.
func RouterConfigMap(c *cachev1alpha1.Memcached, t *contract.RingTable) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(RouterName(c.Name), c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentRouter)).
		WithOwnerReferences(owner(c)).
		WithData(map[string]string{RouterTableKey: RouterTableText(t)})
}

// RouterService has the one address of the cluster; nil if the spec asks for no routers. Each endpoint
// gets hints for its node and its zone. So kube-proxy prefers the routers on the client's node. If there
// are none, it uses those of the zone, and if there are none there either, all routers.
func RouterService(c *cachev1alpha1.Memcached) *coreac.ServiceApplyConfiguration {
	if c.Spec.Router == nil {
		return nil
	}
	return service(c, RouterName(c.Name), cachev1alpha1.ComponentRouter, &c.Spec.Router.Service).
		WithOwnerReferences(owner(c)).
		WithSpec(addressed(&c.Spec.Router.Service).
			WithSelector(routerSelector(c)).
			WithTrafficDistribution(corev1.ServiceTrafficDistributionPreferSameNode).
			WithPorts(coreac.ServicePort().
				WithName(portName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(c.Spec.ContainerPort).
				WithTargetPort(intstr.FromString(portName))))
}

// RouterBudget keeps evictions from removing several routers at once.
func RouterBudget(c *cachev1alpha1.Memcached) *policyac.PodDisruptionBudgetApplyConfiguration {
	if c.Spec.Router == nil || !ptr.Deref(c.Spec.PodDisruptionBudget.Enabled, true) {
		return nil
	}
	return policyac.PodDisruptionBudget(RouterName(c.Name), c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentRouter)).
		WithOwnerReferences(owner(c)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(routerSelector(c))))
}

// RouterPolicy says who may reach the routers: the clients of spec.networkPolicy their port, monitoring the
// metrics, and the operator the state. RouterPolicy is nil if the spec asks for none.
func RouterPolicy(c *cachev1alpha1.Memcached, o Options) *networkingac.NetworkPolicyApplyConfiguration {
	given := c.Spec.NetworkPolicy
	if c.Spec.Router == nil || given == nil {
		return nil
	}
	spec := networkingac.NetworkPolicySpec().
		WithPodSelector(metaac.LabelSelector().WithMatchLabels(routerSelector(c))).
		WithPolicyTypes(networkingv1.PolicyTypeIngress)
	// A rule without peers would allow every client.
	if len(given.Clients) > 0 {
		spec.WithIngress(ingress(intstr.FromString(portName), peers(given.Clients)))
	}
	if len(given.Monitoring) > 0 {
		spec.WithIngress(ingress(intstr.FromString(adminPortName), peers(given.Monitoring)))
	}
	if o.OperatorNamespace != "" {
		spec.WithIngress(ingress(intstr.FromString(adminPortName), []*networkingac.NetworkPolicyPeerApplyConfiguration{operatorPods(o)}))
	}
	return networkingac.NetworkPolicy(RouterName(c.Name), c.Namespace).
		WithLabels(Labels(c, cachev1alpha1.ComponentRouter)).
		WithOwnerReferences(owner(c)).
		WithSpec(spec)
}

// Routers is the routers' Deployment; nil if the spec asks for none. Without spec.router.replicas
// another client, such as an autoscaler, sets their number.
func Routers(c *cachev1alpha1.Memcached, o Options) *appsac.DeploymentApplyConfiguration {
	if c.Spec.Router == nil {
		return nil
	}
	spec := appsac.DeploymentSpec().
		WithSelector(metaac.LabelSelector().WithMatchLabels(routerSelector(c))).
		WithStrategy(appsac.DeploymentStrategy().WithRollingUpdate(appsac.RollingUpdateDeployment().
			WithMaxUnavailable(intstr.FromInt32(0)).
			WithMaxSurge(intstr.FromInt32(1)))).
		WithTemplate(podTemplate(c, routersTemplate(c), cachev1alpha1.ComponentRouter, routerPod(c, o)))
	spec.Replicas = c.Spec.Router.Replicas
	return appsac.Deployment(RouterName(c.Name), c.Namespace).
		WithLabels(withOurs(c.Spec.Router.PodTemplate.Labels, Labels(c, cachev1alpha1.ComponentRouter))).
		WithAnnotations(c.Spec.Router.PodTemplate.Annotations).
		WithOwnerReferences(owner(c)).
		WithSpec(spec)
}

// routerPod is a router's pod, spread over the zones and the nodes.
func routerPod(c *cachev1alpha1.Memcached, o Options) *coreac.PodSpecApplyConfiguration {
	t := routersTemplate(c)
	spec := podSpec(t, routerSelector(c), corev1.LabelTopologyZone, corev1.LabelHostname)
	spec.SecurityContext = convert[coreac.PodSecurityContextApplyConfiguration](securityContext(t, o))
	spec.TerminationGracePeriodSeconds = t.TerminationGracePeriodSeconds
	router := coreac.Container().
		WithName(ContainerRouter).
		WithImage(o.OperatorImage).
		WithTerminationMessagePolicy(messagePolicy).
		WithCommand(append([]string{DrainerPath}, routeArgs(c, o)...)...).
		WithPorts(
			coreac.ContainerPort().WithName(portName).WithProtocol(corev1.ProtocolTCP).WithContainerPort(c.Spec.ContainerPort),
			coreac.ContainerPort().WithName(adminPortName).WithProtocol(corev1.ProtocolTCP).WithContainerPort(RouterAdminPort(c))).
		WithReadinessProbe(coreac.Probe().
			WithHTTPGet(coreac.HTTPGetAction().WithPath("/ready").WithPort(intstr.FromString(adminPortName))).
			WithPeriodSeconds(2).
			WithTimeoutSeconds(2)).
		WithResources(routerResources(c)).
		WithSecurityContext(containerSecurity()).
		WithVolumeMounts(coreac.VolumeMount().WithName(tableVolume).WithMountPath(tableDir).WithReadOnly(true))
	spec.WithVolumes(coreac.Volume().WithName(tableVolume).WithConfigMap(coreac.ConfigMapVolumeSource().WithName(RouterName(c.Name))))
	withSecrets(c, spec, router)
	if o.OnMiss != nil {
		if volume, mount := o.OnMiss.secrets(); volume != nil {
			spec.WithVolumes(convert[coreac.VolumeApplyConfiguration](volume))
			router.WithVolumeMounts(convert[coreac.VolumeMountApplyConfiguration](mount))
		}
	}
	return spec.WithContainers(router)
}

// RouterAdminPort is the port at which routers answer /ready, /metrics and /ring.
func RouterAdminPort(c *cachev1alpha1.Memcached) int32 {
	port := int32(11212)
	for port == c.Spec.ContainerPort || c.Spec.Router != nil && opensPort(&c.Spec.Router.PodTemplate, port) {
		port++
	}
	return port
}

// routeArgs are the router's arguments. The members' certificate and logins are also the routers',
// so applications use the same ones for both.
func routeArgs(c *cachev1alpha1.Memcached, o Options) []string {
	args := []string{"route"}
	add := func(flag string, value any) { args = append(args, fmt.Sprintf("--%s=%v", flag, value)) }
	add(contract.FlagListen, fmt.Sprintf(":%d", c.Spec.ContainerPort))
	add(contract.FlagAdmin, fmt.Sprintf(":%d", RouterAdminPort(c)))
	add(contract.FlagRingFile, tableDir+"/"+RouterTableKey)
	conn := connection(c)
	if conn.TLSDir != "" {
		add(contract.FlagTLSDir, conn.TLSDir)
		add(contract.FlagClientTLSDir, conn.TLSDir)
		if verifiesClients(c) {
			add(contract.FlagClientVerify, true)
		}
	}
	if conn.AuthFile != "" {
		add(contract.FlagAuthFile, conn.AuthFile)
		add(contract.FlagClientAuthFile, conn.AuthFile)
	}
	if c.Spec.Router.FailedReads == cachev1alpha1.FailedReadsError {
		add(contract.FlagFailedReads, contract.FailedReadsError)
	}
	if size := c.Spec.MaxItemSize; size != nil {
		add(contract.FlagMaxItemSize, size.Value())
	}
	if limit, is := c.Spec.Router.Resources.Limits[corev1.ResourceMemory]; is {
		add(contract.FlagMaxMemory, max(limit.Value()/2, 1))
	}
	if grace := time.Duration(*routersTemplate(c).TerminationGracePeriodSeconds) * time.Second; grace < contract.RouterLinger+contract.RouterSpread+contract.RouterDrain {
		const parts = 5 // one is left to start to end, and to exit
		add(contract.FlagLinger, grace/parts)
		add(contract.FlagSpread, grace/parts)
		add(contract.FlagDrainTimeout, 2*grace/parts)
	}
	if o.OnMiss != nil {
		args = append(args, o.OnMiss.onMissArgs()...)
	}
	return args
}

func routerResources(c *cachev1alpha1.Memcached) *coreac.ResourceRequirementsApplyConfiguration {
	return resourcesOf(&c.Spec.Router.Resources, "100m", "64Mi")
}
