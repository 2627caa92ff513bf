package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/plan"
)

// Progressing names the drain that failed beside members that are as wanted.
func TestMembersThatAreAsWantedBesideADrainThatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		in   *Input
		want string
	}{
		"all is well":          {input(3), "the cluster is as wanted"},
		"a drain failed":       {input(2).leaving(2, claims.Failed, "SourceCorrupt", "torn"), "the members are as wanted; claims to be drained: 1 (Failed)"},
		"a person holds one":   {input(2).leaving(2, claims.Held, claims.HeldByRequest, ""), "the members are as wanted; claims to be drained: 1 (Held)"},
		"a move failed":        {input(2).toMove(0, plan.MoveFailed, "StillStored", "clients still store"), "the members are as wanted; members whose items are to be moved: 1"},
		"both wait for others": {input(2).leaving(2, claims.Waiting, claims.InTurn, "").toMove(0, plan.MoveWaits, "", ""), "the members are as wanted; claims to be drained: 1 (Waiting); members whose items are to be moved: 1"},
	} {
		s := compute(t, test.in)
		c := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionProgressing)
		if c.Status != metav1.ConditionFalse || c.Reason != cachev1alpha1.ReasonAsWanted || !strings.HasPrefix(c.Message, test.want) {
			t.Errorf("%s: %s %s %q, want %q", name, c.Status, c.Reason, c.Message, test.want)
		}
	}
}
