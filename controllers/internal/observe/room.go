package observe

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/ask"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// observeRoom asks the members how full they are when a scale-down is about to begin.
func (r *Reader) observeRoom(o *State) {
	key := client.ObjectKeyFromObject(o.Cluster)
	in := o.Input()
	switch {
	case r.Members == nil:
	case r.observeStepRoom(key, o, &in):
	case !in.ScaleDownBegins() || Paused(o.Cluster):
		r.Members.Forget(key)
	case build.Secured(o.Cluster):
		o.Room = &plan.Room{Unknown: "the members need TLS or a login, and the operator does not read their Secrets"}
	default:
		o.Room = r.roomOf(key, o, func(ordinal int32) bool { return ordinal >= *o.Cluster.Spec.Size })
	}
}

func (r *Reader) roomOf(key client.ObjectKey, o *State, leaves func(ordinal int32) bool) *plan.Room {
	return o.RoomBy(leaves, func(port func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer {
		return r.Members.Want(key, port, r.Clock.Now(), pods...)
	})
}

// RoomBy is the room by the answers of the members that should run, by their pods' UIDs.
func (o *State) RoomBy(leaves func(ordinal int32) bool, asked func(port func(*corev1.Pod) int32, pods []*corev1.Pod) map[types.UID]ask.Answer) *plan.Room {
	room := &plan.Room{}
	var pods []*corev1.Pod
	for i := range o.Pods {
		pod := &o.Pods[i]
		if ordinal, ok := build.PodOrdinal(o.Cluster.Name, pod.Name); !ok || ordinal >= *o.StatefulSet.Spec.Replicas {
			continue
		}
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			room.Unknown = fmt.Sprintf("pod %s does not run", pod.Name)
			continue
		}
		pods = append(pods, pod)
	}
	ports := o.Ports(o.Cluster)
	port := func(pod *corev1.Pod) int32 {
		ordinal, _ := build.PodOrdinal(o.Cluster.Name, pod.Name)
		return ports.Of(o.Cluster, ordinal).Memcached
	}
	answers := asked(port, pods)
	for _, pod := range pods {
		answer := answers[pod.UID]
		ordinal, _ := build.PodOrdinal(o.Cluster.Name, pod.Name)
		switch {
		case answer.Wait > 0:
			room.Pending = true
			o.Waits.AtMost(answer.Wait)
		case answer.Err != "":
			room.Unknown = fmt.Sprintf("pod %s: %s", pod.Name, answer.Err)
		case leaves(ordinal):
			room.Leaving += answer.Memory.Used
		default:
			room.Free += max(0, answer.Memory.Limit-answer.Memory.Used)
		}
	}
	room.Pending = room.Pending && room.Unknown == ""
	return room
}
