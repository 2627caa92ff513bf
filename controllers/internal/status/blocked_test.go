package status

import (
	"strings"
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/plan"
)

// TestASizeThatAVolumeBlocksSaysWhichClaimWhyAndTheWayOut, and advises nothing that
// doesn't help.
func TestASizeThatAVolumeBlocksSaysWhichClaimWhyAndTheWayOut(t *testing.T) {
	blocked := func(in *Input) { in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](3), plan.BlockedByVolume }
	const size = "the size can't go from 2 to 3: the volume that member 2 left is still there, and its values may be old; "
	const kept = "spec.drain.policy Retain keeps it, and member 2 can't return before it is gone: delete the claim"
	const deleted = "it was deleted before its drain: an administrator moves its volume"
	for name, test := range map[string]struct {
		in     *Input
		want   string
		reason string // of Degraded
	}{
		"its drain failed": {
			input(2).leaving(2, claims.Failed, "SourceCorrupt", "torn"),
			"the drain of claim data-cache-2 failed (SourceCorrupt): see the drainer's log, then annotate the claim with " +
				"cache.example.com/drain=retry, or =skip to give its items up",
			cachev1alpha1.ReasonDrainFailed,
		},
		"a person holds its drain": {
			input(2).leaving(2, claims.Held, claims.HeldByRequest, "remove it"),
			"a person holds the drain of claim data-cache-2: remove the annotation cache.example.com/drain=hold from the claim, " +
				"or set it to skip to give its items up",
			cachev1alpha1.ReasonBlockedByVolume,
		},
		"policy Retain keeps it":      {input(2).leaving(2, claims.Failed, claims.InTheWay, kept), "claim data-cache-2: " + kept, cachev1alpha1.ReasonDrainFailed},
		"its claim was deleted":       {input(2).leaving(2, claims.Failed, claims.ClaimDeleted, deleted), "claim data-cache-2: " + deleted, cachev1alpha1.ReasonDrainFailed},
		"no drain is planned":         {input(2), "claim data-cache-2 is not drained: take what you need from its volume, then delete the claim, unless it is being deleted already", cachev1alpha1.ReasonBlockedByVolume},
		"another one's drain is held": {input(2).leaving(3, claims.Held, claims.HeldByRequest, ""), "claim data-cache-2 is not drained: take what you need from its volume, then delete the claim, unless it is being deleted already", cachev1alpha1.ReasonBlockedByVolume},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := compute(t, test.in.with(blocked)).Conditions
			progressing := meta.FindStatusCondition(conditions, cachev1alpha1.ConditionProgressing)
			if progressing.Status != metav1.ConditionFalse || progressing.Reason != cachev1alpha1.ReasonBlockedByVolume {
				t.Errorf("progressing: %+v", progressing)
			}
			if diff := cmp.Diff(size+test.want, progressing.Message); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			degraded := meta.FindStatusCondition(conditions, cachev1alpha1.ConditionDegraded)
			if degraded.Reason != test.reason || test.reason == cachev1alpha1.ReasonBlockedByVolume && degraded.Message != progressing.Message {
				t.Errorf("degraded: %+v", degraded)
			}
		})
	}
}

func TestASizeThatADrainBlocksNamesItsClaim(t *testing.T) {
	in := input(2).leaving(2, claims.Waiting, claims.PodPresent, "wait")
	in.Cluster.Spec.Size, in.Plan.SizeBlocked = ptr.To[int32](3), plan.BlockedByVolume
	c := meta.FindStatusCondition(compute(t, in).Conditions, cachev1alpha1.ConditionProgressing)
	if c.Reason != cachev1alpha1.ReasonWaitingForDrain || !strings.HasSuffix(c.Message, "from 2 to 3 when claim data-cache-2 is drained or set aside") {
		t.Errorf("%+v", c)
	}
}
