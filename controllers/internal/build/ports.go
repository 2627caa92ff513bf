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
	"example.com/memcached-operator/drainer/routing"
)

// A change of spec.containerPort replaces the members one by one. Until its turn, a member listens where it did.

// MemberPorts are where a member's memcached listens, and where its supervisor streams items to moves.
type MemberPorts struct{ Memcached, Export int32 }

// Ports has the members that don't listen where the spec says, by their ordinals.
type Ports map[int32]MemberPorts

// PortsOf the first n members, and of all others that have pods: a pod's own, and without a pod those of the
// template by which it will be made, nil for none.
func PortsOf(c *cachev1alpha1.Memcached, n int32, pods []corev1.Pod, template *corev1.PodSpec) Ports {
	if c.Spec.Storage == nil {
		return nil // members have no names
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

// portsIn are the ports in the command of a member; false if it has another form.
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
	portFlag   = "-p"
)

// parsePort returns 0 for what is no port.
func parsePort(text string) int32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}

// Of the member.
func (p Ports) Of(c *cachev1alpha1.Memcached, ordinal int32) MemberPorts {
	if own, is := p[ordinal]; is {
		return own
	}
	return portsBySpec(c)
}

// Variant is a number that differs, as a rule, between different ports; 0 if all listen where the spec says.
func (p Ports) Variant() int32 {
	if len(p) == 0 {
		return 0
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, p) // fmt sorts a map by its keys
	return int32(h.Sum32() >> 1)
}

// Mark is a hash of where all members listen, and of the port by which clients call them.
func (p Ports) Mark(c *cachev1alpha1.Memcached) string {
	return hash(fmt.Sprint(portsBySpec(c), p)) // fmt sorts a map by its keys
}

// exports are all ports of supervisors, in order.
func (p Ports) exports(c *cachev1alpha1.Memcached) []int32 {
	all := []int32{exportPort(c)}
	for _, own := range p {
		all = append(all, own.Export)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// listed are the ports on the clients' list, where these are not the spec's. A member's Service leads to the
// port of its pod. For a library that hashes ports, a list of two ports is a ring of its own, which nothing is moved
// for: what clients stored by it would be lost, or older items would come back. Its list has the new port at once.
func (p Ports) listed(c *cachev1alpha1.Memcached) Ports {
	if len(p) == 0 || Stable(c) || RingOf(c, 0).HashesPort() {
		return nil
	}
	return p
}

// dialled is where drainers and routers dial a member of a ring.
func (p Ports) dialled(c *cachev1alpha1.Memcached, ordinal int32, byService bool) uint16 {
	if byService {
		return uint16(c.Spec.ContainerPort)
	}
	return uint16(p.Of(c, ordinal).Memcached)
}

// exported is where drainers reach the supervisor of a member: at its own port, or at the port of its Service.
func (p Ports) exported(c *cachev1alpha1.Memcached, ordinal int32) int32 {
	if RingOf(c, 0).Stable {
		return exportPort(c)
	}
	return p.Of(c, ordinal).Export
}

// redial the servers of a ring that routers were told of: their names stay.
func (p Ports) redial(c *cachev1alpha1.Memcached, r *contract.Ring) *contract.Ring {
	if r == nil {
		return nil
	}
	redialled := *r
	redialled.Servers = slices.Clone(r.Servers)
	for i, text := range r.Servers {
		if s, err := routing.ParseServer(text); err == nil {
			ordinal := int32(i)
			redialled.Servers[i] = s.At(r.Client, p.dialled(c, ordinal, s.Host == serviceHost(c, ordinal))).Text()
		}
	}
	return &redialled
}
