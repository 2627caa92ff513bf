package observe

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/forecast"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
)

// observeRoom asks the members for their contents when a scale-down is about to begin.
func (r *Reader) observeRoom(ctx context.Context, o *State) {
	key := client.ObjectKeyFromObject(o.Cluster)
	in := o.Input()
	switch {
	case r.Members == nil:
	case r.observeStepRoom(ctx, o, &in):
	case !in.ScaleDownBegins() || Paused(o.Cluster):
		r.Members.Forget(key)
	case build.Secured(o.Cluster):
		o.Room = &plan.Room{Unknown: "the members need TLS or a login, and the operator does not read their Secrets"}
	default:
		o.Room = r.roomOf(ctx, o, &in, in.Wanted())
	}
}

func (r *Reader) roomOf(ctx context.Context, o *State, in *plan.Observed, to ring.Ring) *plan.Room {
	return o.RoomBy(ctx, in, to, func(port func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
		return r.Members.Want(client.ObjectKeyFromObject(o.Cluster), port, r.Clock.Now(), pods...)
	})
}

// RoomBy returns the room that the members of the ring to have for what other members hold. asked returns the
// answers of the members that should run, by their pods' UIDs.
func (o *State) RoomBy(ctx context.Context, in *plan.Observed, to ring.Ring, asked func(port func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer) *plan.Room {
	room := &plan.Room{}
	now := make([]forecast.Holds, bounded(in.StatefulSet.Replicas))
	pods := o.running(len(now), room)
	ports := o.Ports(o.Cluster)
	answers := asked(func(pod *corev1.Pod) int32 { return ports.Of(o.Cluster, o.ordinal(pod)).Memcached }, pods)
	for _, pod := range pods {
		answer, ordinal := answers[pod.UID], o.ordinal(pod)
		switch {
		case answer.Wait > 0:
			room.Pending = true
			o.Waits.AtMost(answer.Wait)
		case answer.Err != "":
			room.Unknown = fmt.Sprintf("pod %s: %s", pod.Name, answer.Err)
		default:
			now[ordinal] = answer.Holds
		}
		if !to.Has(ordinal) {
			room.Leaving += answer.Holds.Bytes
		}
	}
	if room.Pending = room.Pending && room.Unknown == ""; room.Unknown != "" || room.Pending {
		return room
	}
	change, err := o.Change(ctx, in, to)
	if err != nil {
		room.Unknown = fmt.Sprintf("where clients look: %v", err)
		return room
	}
	then := make([]forecast.Holds, to.Size)
	parts, _ := change.Parts(forecast.Rough)
	for _, part := range parts {
		if part.From < len(now) {
			then[part.To].Add(now[part.From].Share(part.Share))
		}
	}
	evicted, paged := forecast.Evicted(now, then, func(member int) int64 { return now[member].Limit })
	room.Evicted, room.Paged = evicted.Bytes, paged
	return room
}

func (o *State) ordinal(pod *corev1.Pod) int32 {
	ordinal, _ := build.PodOrdinal(o.Cluster.Name, pod.Name)
	return ordinal
}

// running returns the pods of the members that should run. The room is unknown if one doesn't.
func (o *State) running(members int, room *plan.Room) (pods []*corev1.Pod) {
	for i := range members {
		name := build.PodName(o.Cluster.Name, int32(i))
		var pod *corev1.Pod
		for k := range o.Pods {
			if p := &o.Pods[k]; p.Name == name && p.Status.PodIP != "" && p.Status.Phase == corev1.PodRunning {
				pod = p
			}
		}
		if pod == nil {
			room.Unknown = fmt.Sprintf("pod %s does not run", name)
			continue
		}
		pods = append(pods, pod)
	}
	return pods
}

// Change is the change from where clients look now to where they look by the ring to.
func (o *State) Change(ctx context.Context, in *plan.Observed, to ring.Ring) (*forecast.Change, error) {
	from := in.Record.Ring
	if from.Client == "" || from.Size == 0 { // the rings are not known: all items are looked through
		from = in.Cluster.Ring.Of(bounded(in.StatefulSet.Replicas))
	}
	change := &forecast.Change{From: from, To: to, MovesOff: in.Cluster.MovesOff}
	var err error
	if change.Before, err = forecast.List(ctx, o.Cluster, from, o.lookup); err != nil {
		return nil, err
	}
	change.After, err = forecast.List(ctx, o.Cluster, to, o.lookup)
	return change, err
}

// lookup finds a member's address, for clients that hash it.
func (o *State) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	name, _, _ := strings.Cut(host, ".")
	for i := range o.Pods {
		if address, err := netip.ParseAddr(o.Pods[i].Status.PodIP); err == nil && o.Pods[i].Name == name {
			return []netip.Addr{address}, nil
		}
	}
	// A member that joins has no address yet, and any address takes a like share of the keys.
	ordinal, _ := build.PodOrdinal(o.Cluster.Name, name)
	return []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(ordinal >> 8), byte(ordinal)})}, nil
}
