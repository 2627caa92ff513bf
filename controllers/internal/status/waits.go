package status

import (
	"fmt"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"

	"example.com/memcached-operator/controllers/internal/build"
)

// waitsFor says what a leaving member waits for. A cause that the operator can't change, such as a
// node that doesn't answer, replaces the plan's message.
func waitsFor(in *Input, d *claims.DrainState) string {
	if d.Phase == claims.Waiting && d.Reason == claims.PodPresent {
		return notEnding(in, d)
	}
	return d.Message
}

// notEnding says on which node a member doesn't end, and since when.
func notEnding(in *Input, d *claims.DrainState) string {
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
