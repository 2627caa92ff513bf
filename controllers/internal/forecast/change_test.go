package forecast

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/routing"
)

// counted is an owner function that gives keys to the members in turn, and counts its calls.
type counted struct{ members, calls int }

func (c *counted) Owner([]byte) int {
	c.calls++
	return (c.calls - 1) % c.members
}

func change(before, after int) (c *Change, asked *counted) {
	asked = &counted{members: before}
	return &Change{
		From: ring.Ring{Size: int32(before)}, To: ring.Ring{Size: int32(after)},
		Before: routing.List{Servers: make([]routing.Server, before), Owner: asked},
		After:  routing.List{Servers: make([]routing.Server, after), Owner: &counted{members: after}},
	}, asked
}

func TestItemsOfMembersThatStayGoNowhereWhereMovesAreOff(t *testing.T) {
	for name, test := range map[string]struct {
		off  bool
		want []Part
	}{
		"moved": {false, []Part{{0, 0, 0.5, false}, {0, 1, 0.5, false}, {1, 0, 0.5, false}, {1, 1, 0.5, false}, {2, 0, 0.5, false}, {2, 1, 0.5, false}}},
		"off":   {true, []Part{{0, 0, 0.5, false}, {0, 0, 0.5, true}, {1, 1, 0.5, true}, {1, 1, 0.5, false}, {2, 0, 0.5, false}, {2, 1, 0.5, false}}},
	} {
		c, _ := change(3, 2)
		c.MovesOff = test.off
		parts, elsewhere := c.Parts(Exact)
		for i := range parts {
			parts[i].Share = float64(int(parts[i].Share*100+0.5)) / 100
		}
		if diff := cmp.Diff(test.want, parts); diff != "" || elsewhere < 0.66 || elsewhere > 0.67 {
			t.Errorf("%s: %f of the keys are elsewhere, -want +got:\n%s", name, elsewhere, diff)
		}
	}
}

// A reconcile waits for this work.
func TestTheWorkForAForecastIsBounded(t *testing.T) {
	for _, members := range []int{3, 100, 512} {
		c, asked := change(members, members-1)
		c.To.Client = "pymemcache"
		c.Parts(Rough)
		if hashes := asked.calls * (2*members - 1); asked.calls == 0 || asked.calls > 16_384 || hashes > 1<<20 {
			t.Errorf("%d members: %d keys", members, asked.calls)
		}
	}
}
