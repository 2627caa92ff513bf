package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// startedCold names the members that started cold, because their volume is too small or because their last
// pod was lost without a save, or with a part of one. A member says so in its termination message, which
// lasts until the member ends again.
func startedCold(in *Input, s *cachev1alpha1.MemcachedStatus) *cachev1alpha1.Advice {
	var cold []string
	room := ""
	for _, name := range s.Nodes {
		i := slices.IndexFunc(in.Pods, func(p corev1.Pod) bool { return p.Name == name })
		switch c := coldStart(&in.Pods[i]); {
		case c == nil:
		case c.SaveOutdated && c.SaveError != "":
			cold = append(cold, fmt.Sprintf("%s (its last pod could not save: %s)", name, claims.Bound(c.SaveError, maxWords)))
		case c.SaveOutdated:
			cold = append(cold, fmt.Sprintf("%s (its last pod was lost without a save)", name))
		case c.SaveIncomplete != "":
			cold = append(cold, fmt.Sprintf("%s (it has only a part of its items: %s)", name, claims.Bound(c.SaveIncomplete, maxWords)))
		case c.Unreadable != "":
			cold = append(cold, fmt.Sprintf("%s (nothing of its file can be read: %s)", name, claims.Bound(c.Unreadable, maxWords)))
		default:
			cold = append(cold, fmt.Sprintf("%s (needs %d MiB, has %d MiB)", name, c.NeedBytes>>20, c.FreeBytes>>20))
			room = "; if a volume had no room for a second warm file, make storage.size more than twice memory"
		}
	}
	if len(cold) == 0 {
		return nil
	}
	return advise(cachev1alpha1.ReasonStartedCold, "members that started cold: %s%s", someOf(cold), room)
}

// coldStart is the member's report at its last end, or else its init container's earlier report; nil if
// neither started cold.
func coldStart(pod *corev1.Pod) *contract.ColdStart {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if t := c.LastTerminationState.Terminated; t != nil && c.Name == build.ContainerMemcached {
			return contract.ParseColdStart(t.Message)
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && c.Name == build.ContainerInstall {
			return contract.ParseColdStart(t.Message)
		}
	}
	return nil
}
