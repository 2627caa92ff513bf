package stsdrain_test

import (
	"slices"
	"testing"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain"
)

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
