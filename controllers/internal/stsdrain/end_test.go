package stsdrain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

// A pod of any client may use a claim that is being set aside, for as long as it likes. The end waits for it, and says so.
func TestAnEndSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	ends := func(o *stsdrain.Observed) { o.Drain.Deleting = true }
	for what, test := range map[string]struct {
		o    *stsdrain.Observed
		want string
	}{
		"its claim is in use": {left(claim(2, deleting), claim(2, func(c *claims.Claim) { c.InUse = true }), ends),
			"claim data-queue-2 was deleted: when no pod uses it any more, another claim keeps its volume"},
		"its volume is not bound again yet": {left(claim(2, deleting), claim(2, is(claims.Reserved)), ends),
			"claim data-queue-2 was deleted: another claim is to keep its volume"},
		"nothing": {left(ends), ""},
	} {
		p := stsdrain.Decide(test.o)
		s := stsdrain.ComputeStatus(&stsdrain.StatusInput{Observed: test.o, Plan: &p, Drain: deleted()})
		ready := meta.FindStatusCondition(s.Conditions, cachev1alpha1.ConditionReady)
		if got := strings.TrimPrefix(strings.TrimPrefix(ready.Message, "claims are released; none is drained any more"), "; "); got != test.want {
			t.Errorf("%s: want %q, got %q", what, test.want, got)
		}
	}
}

// deleted is a StatefulSetDrain that ends.
func deleted() *cachev1alpha1.StatefulSetDrain {
	return &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
}

// A claim goes with its StatefulSet (whenDeleted: Delete) while its volume is reserved for another claim, which was not made
// yet. The volume goes with the claim, and waits for no claim that nothing will make.
func TestAReservedVolumeIsReturnedToAClaimThatGoesWithItsStatefulSet(t *testing.T) {
	t.Parallel()
	goes := func(c *claims.Claim) { c.OwnedBySet, c.Where = true, claims.Reserved }
	for what, o := range map[string]*stsdrain.Observed{
		"departed": left(claim(2, deleting), claim(2, goes)),
		"two":      with(at(3), two, scaled(2), both(marked), gone(2), both(deleting), both(goes)),
	} {
		o.Set.Exists = false
		var got []string
		for _, a := range stsdrain.Decide(o).Actions {
			got = append(got, a.String())
		}
		for i := range o.Claims {
			c := &o.Claims[i]
			if !c.Deleting {
				continue
			}
			returns := slices.Index(got, "return volume "+c.Volume+" to claim "+c.Name)
			if releases := slices.Index(got, "release claim "+c.Name+": StatefulSetDeleted"); returns < 0 || releases < returns {
				t.Errorf("%s: claim %s: %v", what, c.Name, got)
			}
		}
	}
}
