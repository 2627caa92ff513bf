// Package trim cuts objects down to what a reconcile reads, before they enter the
// cache. It is pure. Whoever tests what is concluded from an object feeds it one that
// went through here, as in production.
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
	// maxMessage bounds what a controller or the kubelet says of a pod, in bytes.
	maxMessage = 1024
	// maxContainers bounds the containers of a pod that are kept, ours first.
	maxContainers = 16
	// maxKeys bounds the labels and the annotations that are kept, maxValue each
	// annotation, in bytes.
	maxKeys, maxValue = 32, 4096
)

// Pod keeps what is ours or Kubernetes' own of a pod's metadata, where it runs, how
// much memory its memcached has, and what became of its containers. The cache also
// passes tombstones, which are no pods: they stay as they are.
func Pod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.GenerateName = nil, ""
	pod.Annotations = annotations(pod.Annotations)
	pod.Labels = labels(pod.Labels)
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: memcached(pod.Spec.Containers)}
	s := &pod.Status
	pod.Status = corev1.PodStatus{
		Phase: s.Phase, Reason: text(s.Reason), Message: text(s.Message), Conditions: conditions(s.Conditions),
		PodIP: s.PodIP, StartTime: s.StartTime,
		ContainerStatuses: containers(s.ContainerStatuses), InitContainerStatuses: containers(s.InitContainerStatuses),
	}
	return pod, nil
}

// annotations keeps those of this operator.
func annotations(all map[string]string) map[string]string {
	return keep(all, func(key, value string) bool { return ours(key) && len(value) <= maxValue })
}

// labels keeps those of this operator and of Kubernetes: nothing selects by others.
func labels(all map[string]string) map[string]string {
	return keep(all, func(key, _ string) bool {
		domain, _, found := strings.Cut(key, "/")
		return !found || ours(key) || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || domain == "k8s.io"
	})
}

func ours(key string) bool { return strings.HasPrefix(key, cachev1alpha1.GroupVersion.Group+"/") }

// keep returns the entries that are wanted, nil for none, and of too many ours and
// then the first by name.
func keep(all map[string]string, wanted func(key, value string) bool) map[string]string {
	var keys []string
	for key, value := range all {
		if wanted(key, value) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, func(a, b string) int {
		if ours(a) != ours(b) {
			if ours(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	kept := map[string]string{}
	for _, key := range keys[:min(len(keys), maxKeys)] {
		kept[key] = all[key]
	}
	return kept
}

// memcached keeps the container's name, and of its command what tells its memory.
func memcached(all []corev1.Container) []corev1.Container {
	for i := range all {
		if c := &all[i]; c.Name == build.ContainerMemcached {
			return []corev1.Container{{Name: c.Name, Command: slices.Clone(build.MemoryArgs(c.Command))}}
		}
	}
	return nil
}

func conditions(all []corev1.PodCondition) []corev1.PodCondition {
	all = slices.DeleteFunc(all, func(c corev1.PodCondition) bool {
		return c.Type != corev1.PodReady && c.Type != corev1.PodScheduled && c.Type != corev1.DisruptionTarget
	})
	for i := range all {
		all[i].Reason, all[i].Message = text(all[i].Reason), text(all[i].Message)
	}
	return slices.Clip(all)
}

// containers keeps how each container fares, and not what it is made of.
func containers(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	first := slices.IndexFunc(all, func(c corev1.ContainerStatus) bool { return known(c.Name) })
	if first >= maxContainers {
		all[0], all[first] = all[first], all[0]
	}
	var kept []corev1.ContainerStatus
	for i := range all[:min(len(all), maxContainers)] {
		c := &all[i]
		kept = append(kept, corev1.ContainerStatus{
			Name: c.Name, Ready: c.Ready, Started: c.Started, RestartCount: c.RestartCount,
			State: state(c.State), LastTerminationState: state(c.LastTerminationState),
		})
	}
	return kept
}

func known(container string) bool {
	return container == build.ContainerMemcached || container == build.ContainerDrainer
}

// state keeps a message of ours whole: a receipt is no receipt without its end.
func state(s corev1.ContainerState) corev1.ContainerState {
	if w := s.Waiting; w != nil {
		s.Waiting = &corev1.ContainerStateWaiting{Reason: text(w.Reason), Message: text(w.Message)}
	}
	if t := s.Terminated; t != nil {
		s.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: text(t.Reason), Message: cut(t.Message, contract.MaxReceiptBytes),
			StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
		}
	}
	return s
}

func text(s string) string { return cut(s, maxMessage) }

// cut returns at most so many bytes, whole characters, in memory of its own.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:most], ""))
}
