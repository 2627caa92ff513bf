package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// noReplay is the advice that members have no room to replay their items, or no time to save them. A replay needs
// room for the present file, whose size follows from a member's arguments, and for a new one as the spec wants it.
func noReplay(in *Input) *cachev1alpha1.Advice {
	switch in.Cluster.Spec.Storage.Mode {
	case cachev1alpha1.StorageSaved:
		return noTimeToSave(in)
	case cachev1alpha1.StorageMemory:
		return nil
	case cachev1alpha1.StorageMapped:
	}
	wanted := build.Memory(in.Cluster)
	now := wanted
	for i := range in.Pods {
		now = max(now, runsWith(&in.Pods[i]))
	}
	need, room := now+wanted, build.VolumeSize(in.Cluster).Value()
	if need < room {
		return nil
	}
	return advise(cachev1alpha1.ReasonNoRoomToReplay,
		"a member whose memory is full starts cold if it crashes, or gets another memory, maxItemSize or memcached: to replay its items it needs "+
			"more than %d MiB, for its present file (%d MiB) and a new one (%d MiB), and storage.size is %d MiB",
		need>>20, now>>20, wanted>>20, room>>20)
}

// noTimeToSave: members would be killed before they have saved all of memory, as a save has shown.
func noTimeToSave(in *Input) *cachev1alpha1.Advice {
	name, rate := slowestSave(in.Pods)
	if rate == 0 {
		return nil
	}
	need, has := build.SaveSeconds(in.Cluster, rate), build.GraceSeconds(in.Cluster)
	if need <= has {
		return nil
	}
	return advise(cachev1alpha1.ReasonGracePeriodTooShort,
		"a member that is full would be killed before it has saved all: memory (%d MiB) needs a grace period of %d s at %s, the rate of the last save of %s, and has %d s",
		build.Memory(in.Cluster)>>20, need, perSecond(rate), name, has)
}

// perSecond is a rate for people.
func perSecond(rate int64) string { return fmt.Sprintf("%.1f MiB/s", float64(rate)/(1<<20)) }

// slowestSave is the lowest rate, in bytes a second, of the members' last saves; 0 if no rate is known.
func slowestSave(pods []corev1.Pod) (name string, rate int64) {
	for i := range pods {
		if r := saveRate(&pods[i]); r > 0 && (rate == 0 || r < rate || r == rate && pods[i].Name < name) {
			name, rate = pods[i].Name, r
		}
	}
	return name, rate
}

// saveRate is the rate of a member's last save: of one in which the member was killed, or of the one that its
// init container found on the volume.
func saveRate(pod *corev1.Pod) int64 {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		if t := c.LastTerminationState.Terminated; t != nil && c.Name == build.ContainerMemcached {
			if rate := contract.ParseSaveRate(t.Message); rate > 0 {
				return rate
			}
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		if t := c.State.Terminated; t != nil && c.Name == build.ContainerInstall {
			if rate := contract.ParseSaveRate(t.Message); rate > 0 {
				return rate
			}
		}
	}
	return 0
}

// EarlyWarning is the advice that has to be written before a change of the spec reaches the members, because
// then each of them starts cold; nil if there is nothing to warn of, or if status has the advice already.
func EarlyWarning(in *Input) []cachev1alpha1.Advice {
	known := in.Cluster.Status.Advice
	if in.Cluster.Spec.Storage == nil || deleting(in) || len(in.Pods) == 0 || said(known, cachev1alpha1.ReasonNoRoomToReplay) != nil {
		return nil
	}
	a := noReplay(in)
	if a == nil || a.Reason != cachev1alpha1.ReasonNoRoomToReplay {
		return nil
	}
	return inOrder(append(slices.Clone(known), *a))
}

// runsWith is the memory that the pod's member runs with, in bytes; 0 if that is not
// known.
func runsWith(pod *corev1.Pod) int64 {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == build.ContainerMemcached {
			return build.MemoryOf(c.Command)
		}
	}
	return 0
}
