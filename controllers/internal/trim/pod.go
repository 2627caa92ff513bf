// Package trim reduces objects to the parts that a reconcile reads, before they enter the cache. The package
// is pure. Tests that read an object trim it first, as in production.
package trim

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

const (
	// maxWords bounds the messages of one pod, in bytes, to the kubelet's limit for the termination
	// messages of a pod.
	maxWords = 12 << 10
	// maxMessage and maxReason bound one message and its reason, in bytes.
	maxMessage, maxReason = 1024, 128
	// maxContainers bounds the containers of a pod that are kept, ours first.
	maxContainers = 8
)

// maxPodIPs allows one address of each family.
const maxPodIPs = 2

// Pod keeps the parts of a pod that a reconcile reads: metadata, node, memcached's ports and
// memory, a router's port, and the states of its containers. The cache also passes tombstones, which are not pods
// and are returned unchanged.
func Pod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	metadata(&pod.ObjectMeta, ofPods)
	deadline := pod.Spec.ActiveDeadlineSeconds
	pod.Spec = corev1.PodSpec{NodeName: name(pod.Spec.NodeName), Containers: served(pod.Spec.Containers)}
	s := pod.Status
	pod.Status = corev1.PodStatus{Phase: corev1.PodPhase(name(string(s.Phase))), PodIP: name(s.PodIP)}
	for _, ip := range s.PodIPs[:min(len(s.PodIPs), maxPodIPs)] {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: name(ip.IP)})
	}
	room := words(maxWords)
	drainer := pod.Annotations[cachev1alpha1.AnnotationContainer]
	if drainer != "" { // a StatefulSetDrain's: what told it to end
		pod.Spec.ActiveDeadlineSeconds = deadline
		pod.Status.StartTime, pod.Status.Reason = s.StartTime, room.text(s.Reason, maxReason)
	}
	pod.Status.ContainerStatuses = room.containers(s.ContainerStatuses, drainer)
	pod.Status.InitContainerStatuses = room.containers(s.InitContainerStatuses, drainer)
	pod.Status.Conditions = room.conditions(s.Conditions)
	return pod, nil
}

// served keeps the name of memcached's or the router's container, and the parts of its command that a
// reconcile reads.
func served(all []corev1.Container) []corev1.Container {
	for i := range all {
		switch c := &all[i]; c.Name {
		case build.ContainerMemcached:
			return []corev1.Container{{Name: c.Name, Command: build.MemberArgs(c.Command)}}
		case build.ContainerRouter:
			return []corev1.Container{{Name: c.Name, Command: build.RouterArgs(c.Command)}}
		}
	}
	return nil
}

// words is how many more bytes of messages of the pod may be kept.
type words int

func (w *words) text(s string, most int) string {
	s = cut(s, min(most, int(*w)))
	*w -= words(len(s))
	return s
}

// lastMessage keeps a container's last message whole, because a receipt is invalid without its end.
// If the message is longer than the kubelet allows, its end is kept, after a mark that no reader
// accepts.
func (w *words) lastMessage(s string) string {
	if len(s) > contract.MaxReceiptBytes {
		s = "…" + strings.ToValidUTF8(s[len(s)-maxMessage:], "")
	}
	if len(s) > int(*w) {
		return ""
	}
	*w -= words(len(s))
	return s
}

// conditions keeps the first condition of each type that is read.
func (w *words) conditions(all []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.DisruptionTarget} {
		if i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
			c := &all[i]
			kept = append(kept, corev1.PodCondition{
				Type: kind, Status: corev1.ConditionStatus(name(string(c.Status))), LastTransitionTime: c.LastTransitionTime,
				Reason: w.text(c.Reason, maxReason), Message: w.text(c.Message, maxMessage),
			})
		}
	}
	return kept
}

// containers keeps the state of each container. drainer is the name of a StatefulSetDrain's.
func (w *words) containers(all []corev1.ContainerStatus, drainer string) []corev1.ContainerStatus {
	slices.SortStableFunc(all, func(a, b corev1.ContainerStatus) int { return rank(&a, drainer) - rank(&b, drainer) })
	var kept []corev1.ContainerStatus
	for i := range all[:min(len(all), maxContainers)] {
		c := &all[i]
		kept = append(kept, corev1.ContainerStatus{
			Name: name(c.Name), Ready: c.Ready, Started: c.Started, RestartCount: c.RestartCount,
			State: w.state(c.State), LastTerminationState: w.state(c.LastTerminationState),
		})
	}
	return kept
}

// ours are the containers whose words are read.
var ours = []string{build.ContainerMemcached, build.ContainerInstall, build.ContainerDrainer, build.ContainerRouter}

// rank sorts containers: ours first, then those that keep the pod running.
func rank(c *corev1.ContainerStatus, drainer string) int {
	switch {
	case slices.Contains(ours, c.Name), c.Name == drainer:
		return 0
	case c.State.Terminated == nil:
		return 1
	}
	return 2
}

func (w *words) state(s corev1.ContainerState) corev1.ContainerState {
	kept := corev1.ContainerState{Running: s.Running}
	if waits := s.Waiting; waits != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: w.text(waits.Reason, maxReason), Message: w.text(waits.Message, maxMessage)}
	}
	if t := s.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: w.text(t.Reason, maxReason), Message: w.lastMessage(t.Message),
			StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
		}
	}
	return kept
}
