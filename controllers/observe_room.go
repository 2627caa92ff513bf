package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// observeRoom has what is known of the members, when some of them are about to leave:
// what these hold, and what those that stay have room for.
func (r *MemcachedReconciler) observeRoom(o *observed) {
	key := client.ObjectKeyFromObject(o.cluster)
	in := o.input()
	switch {
	case r.room == nil:
	case !in.Shrinks() || paused(o.cluster):
		r.room.Forget(key)
	case build.Secured(o.cluster):
		o.room = &plan.Room{Unknown: "the members ask for TLS or a login, and the operator doesn't read their Secrets"}
	default:
		o.room = r.roomOf(key, o)
	}
}

func (r *MemcachedReconciler) roomOf(key client.ObjectKey, o *observed) *plan.Room {
	room := &plan.Room{}
	var pods []*corev1.Pod
	for i := range o.pods {
		pod := &o.pods[i]
		if ordinal, ok := build.PodOrdinal(o.cluster.Name, pod.Name); !ok || ordinal >= *o.statefulSet.Spec.Replicas {
			continue
		}
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			room.Unknown = fmt.Sprintf("pod %s does not say: it doesn't run", pod.Name)
			continue
		}
		pods = append(pods, pod)
	}
	answers := r.room.Want(key, o.cluster.Spec.ContainerPort, r.Clock.Now(), pods...)
	for _, pod := range pods {
		answer := answers[pod.UID]
		ordinal, _ := build.PodOrdinal(o.cluster.Name, pod.Name)
		switch {
		case answer.Wait > 0:
			room.Pending = true
			o.waits.atMost(answer.Wait)
		case answer.Err != "":
			room.Unknown = fmt.Sprintf("pod %s does not say: %s", pod.Name, answer.Err)
		case ordinal >= *o.cluster.Spec.Size:
			room.Leaving += answer.Memory.Used
		default:
			room.Free += max(0, answer.Memory.Limit-answer.Memory.Used)
		}
	}
	room.Pending = room.Pending && room.Unknown == ""
	return room
}
