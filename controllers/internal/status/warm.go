package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// warm tells which members started cold, because their volume is too small or because
// their last pod was lost without a save, or with a part of one. A member says so in its
// termination message, which lasts until it ends again. Members that joined are warm when
// their items have been moved.
func warm(in *Input, s *cachev1alpha1.MemcachedStatus) metav1.Condition {
	const kind = cachev1alpha1.ConditionWarm
	var cold []string
	advice := ""
	for _, name := range s.Nodes {
		i := slices.IndexFunc(in.Pods, func(p corev1.Pod) bool { return p.Name == name })
		switch c := coldStart(&in.Pods[i]); {
		case c == nil:
		case c.SaveOutdated && c.SaveError != "":
			cold = append(cold, fmt.Sprintf("%s (its last pod could not save: %s)", name, bound(c.SaveError, maxWords)))
		case c.SaveOutdated:
			cold = append(cold, fmt.Sprintf("%s (its last pod was lost without a save)", name))
		case c.SaveIncomplete != "":
			cold = append(cold, fmt.Sprintf("%s (it has only a part of its items: %s)", name, bound(c.SaveIncomplete, maxWords)))
		case c.Unreadable != "":
			cold = append(cold, fmt.Sprintf("%s (nothing of its file can be read: %s)", name, bound(c.Unreadable, maxWords)))
		default:
			cold = append(cold, fmt.Sprintf("%s (needs %d MiB, has %d MiB)", name, c.NeedBytes>>20, c.FreeBytes>>20))
			advice = "; if a volume had no room for a second warm file, make storage.size more than twice memory"
		}
	}
	n := len(in.Plan.Moves)
	switch {
	case len(cold) == 0 && n > 0:
		return condition(kind, false, cachev1alpha1.ReasonMoving, "members whose items are not moved yet: %d; see the condition Moving", n)
	case len(cold) == 0:
		return condition(kind, true, cachev1alpha1.ReasonKeptCache, "no member that runs has lost its items for lack of room or of a save")
	}
	return condition(kind, false, cachev1alpha1.ReasonStartedCold, "members that started cold: %s%s", someOf(cold), advice)
}

// coldStart is what the member said when it ended last, or else what the operator's init
// container said beforehand; nil if neither started cold.
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
