package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claim"
)

// A drain whose Job can't be made keeps no other drain, no placement and no size waiting.
func TestADrainWhoseJobCannotBeMadeHoldsUpNoOther(t *testing.T) {
	newest := func(c *claim.Claim) { c.Left = 9 }
	until := time.Unix(5000, 0)
	s := at(1).left(2, newest).left(1).with(func(o *Observed) {
		o.Now = until.Add(-time.Second)
		o.Obstructed = map[types.UID]Obstruction{uid(2): {Why: "Job data-2-drain belongs to somebody else", Taken: true, Until: until}}
	})
	got := planned(s)
	if want := []string{"2 Failed NameTaken", "1 Draining"}; !slices.Equal(got.Drains, want) {
		t.Errorf("drains are %v, want %v", got.Drains, want)
	}
	if want := []string{"apply the StatefulSet, 1 replicas", "drain claim data-1 into 1 survivors"}; !slices.Equal(got.Actions, want) {
		t.Error(cmp.Diff(want, got.Actions))
	}
	if p := Next(&s.o); !p.Wake.Equal(until) {
		t.Errorf("it is tried again at %s", p.Wake)
	}
}
