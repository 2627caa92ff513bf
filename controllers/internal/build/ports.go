package build

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// A change of spec.containerPort replaces the members one by one. A member listens at its old port
// until its turn.

// MemberPorts are the ports of a member's memcached, and of its supervisor, which streams items to
// moves.
type MemberPorts struct{ Memcached, Export int32 }

// Ports has the ports of the members that don't listen at the spec's, by their ordinals.
type Ports map[int32]MemberPorts

// PortsOf returns the ports of the first n members, and of all others that have pods: the ports in
// the pod or, without a pod, those in the template from which it will be created; nil if there is
// no template.
func PortsOf(c *cachev1alpha1.Memcached, n int32, pods []corev1.Pod, template *corev1.PodSpec) Ports {
	if c.Spec.Storage == nil {
		return nil // members without storage have no names of their own
	}
	wanted := portsBySpec(c)
	all := map[int32]MemberPorts{}
	if next, ok := portsIn(template); ok && next != wanted {
		for i := range min(n, cachev1alpha1.MaxSize) {
			all[i] = next
		}
	}
	for i := range pods {
		ordinal, member := PodOrdinal(c.Name, pods[i].Name)
		if own, ok := portsIn(&pods[i].Spec); member && ok {
			all[ordinal] = own
		}
	}
	var ports Ports
	for ordinal, own := range all {
		if own.Export == 0 {
			own.Export = wanted.Export
		}
		if own != wanted {
			if ports == nil {
				ports = Ports{}
			}
			ports[ordinal] = own
		}
	}
	return ports
}

func portsBySpec(c *cachev1alpha1.Memcached) MemberPorts {
	return MemberPorts{Memcached: c.Spec.ContainerPort, Export: exportPort(c)}
}

// portsIn parses the ports in the command of a member; false if the command has another form.
func portsIn(spec *corev1.PodSpec) (MemberPorts, bool) {
	if spec == nil {
		return MemberPorts{}, false
	}
	for i := range spec.Containers {
		if container := &spec.Containers[i]; container.Name == ContainerMemcached {
			return portsInCommand(MemberArgs(container.Command))
		}
	}
	return MemberPorts{}, false
}

func portsInCommand(args []string) (p MemberPorts, ok bool) {
	for i, a := range args {
		if text, is := strings.CutPrefix(a, exportFlag); is {
			p.Export = parsePort(text)
		}
		if a == portFlag && i+1 < len(args) {
			p.Memcached = parsePort(args[i+1])
		}
	}
	return p, p.Memcached > 0
}

const (
	exportFlag = "--" + contract.FlagExportPort + "="
	probeFlag  = "--" + contract.FlagProbePort + "="
	adminFlag  = "--" + contract.FlagAdmin + "=:"
	portFlag   = "-p"
)

// AskedAt is the port at which the operator asks the pod of a member or a router about itself: the port in
// the pod's command, or else bySpec. The two differ after a change of the spec, while pods are replaced one
// by one.
func AskedAt(pod *corev1.Pod, bySpec int32) int32 {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name != ContainerMemcached && c.Name != ContainerRouter {
			continue
		}
		for _, a := range c.Command {
			for _, flag := range []string{probeFlag, adminFlag} {
				if text, is := strings.CutPrefix(a, flag); is && parsePort(text) > 0 {
					return parsePort(text)
				}
			}
		}
	}
	return bySpec
}

// parsePort returns 0 if the text is not a port.
func parsePort(text string) int32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}

// Of returns the ports of the member.
func (p Ports) Of(c *cachev1alpha1.Memcached, ordinal int32) MemberPorts {
	if own, is := p[ordinal]; is {
		return own
	}
	return portsBySpec(c)
}

// Variant is a hash of the ports; 0 if all members listen at the spec's ports.
func (p Ports) Variant() int32 {
	if len(p) == 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, p) // fmt sorts a map by its keys
	return int32(h.Sum32() >> 1)
}

// Mark is a hash of all members' ports, and of the port by which clients call them.
func (p Ports) Mark(c *cachev1alpha1.Memcached) string {
	return hash(fmt.Sprint(portsBySpec(c), p)) // fmt sorts a map by its keys
}

// exports are all ports of supervisors, in ascending order.
func (p Ports) exports(c *cachev1alpha1.Memcached) []int32 {
	all := []int32{exportPort(c)}
	for _, own := range p {
		all = append(all, own.Export)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// listed are the ports on the clients' list that are not the spec's. A member's Service has the
// spec's port and routes to the pod's. If the client library hashes ports, a list with two ports
// would be a ring that no move follows: items that clients store by it would be lost, or older
// items would come back. So such a list has the new port at once.
func (p Ports) listed(c *cachev1alpha1.Memcached) Ports {
	if len(p) == 0 || Stable(c) || RingOf(c, 0).HashesPort() {
		return nil
	}
	return p
}

// dialled is the port at which drainers and routers dial a member of a ring.
func (p Ports) dialled(c *cachev1alpha1.Memcached, ordinal int32, byService bool) uint16 {
	if byService {
		return uint16(c.Spec.ContainerPort)
	}
	return uint16(p.Of(c, ordinal).Memcached)
}

// exported is the port at which drainers reach the supervisor of a member: the supervisor's own
// port, or that of the member's Service.
func (p Ports) exported(c *cachev1alpha1.Memcached, ordinal int32) int32 {
	if RingOf(c, 0).Stable {
		return exportPort(c)
	}
	return p.Of(c, ordinal).Export
}

// redial returns the ring with the present ports of its members. The names of the servers stay.
func (p Ports) redial(c *cachev1alpha1.Memcached, r *contract.Ring) *contract.Ring {
	if r == nil {
		return nil
	}
	redialled := *r
	redialled.Servers = slices.Clone(r.Servers)
	for i, text := range r.Servers {
		if s, ordinal, is := ourServer(c, text); is {
			redialled.Servers[i] = s.At(r.Client, p.dialled(c, ordinal, s.Host == serviceHost(c, ordinal))).Text()
		}
	}
	return &redialled
}
