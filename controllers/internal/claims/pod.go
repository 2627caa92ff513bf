package claims

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// StuckAfter is how long a wait that usually ends by itself may take.
const StuckAfter = time.Minute

// Wait is why a Job has no drainer at work, and since when.
type Wait struct {
	Reason, Message string
	Since           time.Time
}

// PodReady tells whether the pod is ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// OOMKilled is the kubelet's word for a container that the kernel has killed for lack of memory.
const OOMKilled = "OOMKilled"

// MoreMemory says where to raise a container's memory limit: in this field of the spec, or else where the
// limit comes from (a LimitRange).
func MoreMemory(limits corev1.ResourceList, field string) string {
	if _, is := limits[corev1.ResourceMemory]; is {
		return "; raise " + field + ".limits.memory"
	}
	return "; " + field + " has no memory limit: the limit is that of a LimitRange (kubectl get limitrange), or the node ran out of memory: set a limit"
}

// drainerGrace is Kubernetes' default, in seconds.
const drainerGrace = 30

// DrainerEnds is when a drainer's pod that was told to end has to be gone. grace is the grace period
// that its template gives, in seconds; 0 if it gives none. Any client may have created a similar pod
// with a grace period of a year, so the grace period is bounded by the template's or the default.
func DrainerEnds(pod *corev1.Pod, grace int64) time.Time {
	ends, most := pod.DeletionTimestamp.Time, max(drainerGrace, grace)
	if has := pod.DeletionGracePeriodSeconds; has != nil && *has > most {
		ends = time.Unix(ends.Unix()-*has+most, 0)
	}
	return ends
}

// DrainerDoesNotEnd tells whether and why a drainer's pod that was told to end is overdue: it has
// had a minute more than its grace period.
func DrainerDoesNotEnd(pod *corev1.Pod, grace int64, now time.Time) (Wait, bool) {
	if pod.DeletionTimestamp == nil || now.Before(DrainerEnds(pod, grace).Add(StuckAfter)) {
		return Wait{}, false
	}
	ends := DrainerEnds(pod, grace)
	return Wait{Reason: cachev1alpha1.ReasonDrainerDoesNotEnd, Message: DoesNotEnd(pod, ends), Since: ends}, true
}

// DoesNotEnd says that the kubelet has not ended the pod by then, usually because its node is down.
func DoesNotEnd(pod *corev1.Pod, ends time.Time) string {
	return fmt.Sprintf("pod %s should have ended by %s, and node %s has not reported its end: start that node again; if it is gone for good, delete the Node object",
		pod.Name, ends.UTC().Format(time.RFC3339), pod.Spec.NodeName)
}
