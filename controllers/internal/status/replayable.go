package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/drainer/contract"
)

// replayable tells beforehand whether members have room to replay their items: for the
// present file, by the arguments that they run with, and for the new one, by the spec.
func replayable(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionReplayable
	if in.Cluster.Spec.Storage.Mode == cachev1alpha1.StorageSaved {
		return timeToSave(in)
	}
	wanted := build.Memory(in.Cluster)
	now := wanted
	for i := range in.Pods {
		now = max(now, runsWith(&in.Pods[i]))
	}
	if need, room := now+wanted, build.VolumeSize(in.Cluster).Value(); need >= room {
		return condition(kind, false, cachev1alpha1.ReasonNoRoomToReplay,
			"a member whose memory is full starts cold if it crashes, or gets another memory, maxItemSize or memcached: to replay its items it needs "+
				"more than %d MiB, for its present file (%d MiB) and a new one (%d MiB), and storage.size is %d MiB",
			need>>20, now>>20, wanted>>20, room>>20)
	}
	return condition(kind, true, cachev1alpha1.ReasonRoomToReplay, "the volumes have room for a second warm file")
}

// timeToSave tells whether members have the time to save all of memory, once a save has
// shown how fast their disks are.
func timeToSave(in *Input) metav1.Condition {
	const kind = cachev1alpha1.ConditionReplayable
	const room = "items are replayed from the save on the volume, which needs no room for a second file"
	name, rate := slowestSave(in.Pods)
	if rate == 0 {
		return condition(kind, true, cachev1alpha1.ReasonRoomToReplay, room)
	}
	need, has := build.SaveSeconds(in.Cluster, rate), build.GraceSeconds(in.Cluster)
	if need > has {
		return condition(kind, false, cachev1alpha1.ReasonGracePeriodTooShort,
			"a member that is full would be killed before it has saved all: memory (%d MiB) needs a grace period of %d s at %s, the rate of the last save of %s, and has %d s",
			build.Memory(in.Cluster)>>20, need, perSecond(rate), name, has)
	}
	return condition(kind, true, cachev1alpha1.ReasonRoomToReplay,
		room+"; memory needs a grace period of %d s at %s, the rate of the last save of %s, and has %d s", need, perSecond(rate), name, has)
}

// perSecond is a rate for people.
func perSecond(rate int64) string { return fmt.Sprintf("%.1f MiB/s", float64(rate)/(1<<20)) }

// slowestSave is the lowest rate, in bytes a second, of the members' last saves; 0 unknown.
func slowestSave(pods []corev1.Pod) (name string, rate int64) {
	for i := range pods {
		if r := saveRate(&pods[i]); r > 0 && (rate == 0 || r < rate || r == rate && pods[i].Name < name) {
			name, rate = pods[i].Name, r
		}
	}
	return name, rate
}

// saveRate is that of a member's last save: one in which it was killed, or what the
// operator's init container found on the volume.
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

// EarlyWarning is the condition that has to be written before a change of the spec
// reaches the members, because then each of them starts cold. It is nil if nothing is to
// be warned of, or if status has it already.
func EarlyWarning(in *Input) *metav1.Condition {
	if in.Cluster.Spec.Storage == nil || deleting(in) || len(in.Pods) == 0 {
		return nil
	}
	if known := meta.FindStatusCondition(in.Cluster.Status.Conditions, cachev1alpha1.ConditionReplayable); known != nil && known.Reason == cachev1alpha1.ReasonNoRoomToReplay {
		return nil
	}
	c := replayable(in)
	if c.Reason != cachev1alpha1.ReasonNoRoomToReplay {
		return nil
	}
	c.ObservedGeneration, c.LastTransitionTime = in.Cluster.Generation, metav1.NewTime(in.Now)
	return &c
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
