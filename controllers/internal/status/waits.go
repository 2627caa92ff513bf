package status

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/build"
	"example.com/memcached-operator/controllers/internal/plan"
)

// SlowStart is how long a drainer's pod may take to start before status says
// that it hasn't, and where.
const SlowStart = 10 * time.Second

// waitsFor says what a drain waits for outside of the operator's reach: a node
// that doesn't answer, or one that takes no pods. Where it is nothing, the
// message is the plan's.
func waitsFor(in *Input, d *plan.DrainState) string {
	switch {
	case d.Phase == plan.Waiting && d.Reason == plan.PodPresent:
		return leaving(in, d)
	case d.Phase == plan.Draining:
		return notStarted(in, d)
	}
	return d.Message
}

// leaving tells on which node a member doesn't end, and since when.
func leaving(in *Input, d *plan.DrainState) string {
	for i := range in.Pods {
		pod := &in.Pods[i]
		ordinal, _ := build.PodOrdinal(in.Cluster.Name, pod.Name)
		if ordinal != d.Claim.Ordinal || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
			continue
		}
		asked := pod.DeletionTimestamp.Time
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			asked = asked.Add(-time.Duration(*grace) * time.Second)
		}
		return fmt.Sprintf("%s: on %s, since %s", d.Message, pod.Spec.NodeName, asked.UTC().Format(time.RFC3339))
	}
	return d.Message
}

// notStarted tells why a drainer's pod doesn't run.
func notStarted(in *Input, d *plan.DrainState) string {
	for i := range in.DrainerPods {
		pod := &in.DrainerPods[i]
		if pod.Annotations[cachev1alpha1.AnnotationClaimUID] != string(d.Claim.UID) ||
			pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			continue
		}
		since := pod.CreationTimestamp.UTC().Format(time.RFC3339)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return fmt.Sprintf("the drainer waits for the volume's node since %s: %s", since, c.Message)
			}
		}
		if pod.Spec.NodeName != "" && in.Now.Sub(pod.CreationTimestamp.Time) >= SlowStart {
			return fmt.Sprintf("%s has not started the drainer, which waits since %s", pod.Spec.NodeName, since)
		}
	}
	return d.Message
}
