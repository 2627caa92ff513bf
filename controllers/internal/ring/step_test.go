package ring

import (
	"slices"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/routing"
)

// TestEachStepCounts: stepping out moves no key of a member that stays, but those of the member that is out; stepping
// in moves keys of all others. So a member's items are moved by each of them.
func TestEachStepCounts(t *testing.T) {
	whole := of("pymemcache", 3)
	r := after(whole, whole.Without(1))
	if r.Serial != 1 || r.From != whole || !r.StepsOut() {
		t.Errorf("out: %s", r)
	}
	if again, err := Parse(r.String()); err != nil || again != r {
		t.Errorf("%s is read as %s, %v", r, again, err)
	}
	r = r.Next(whole)
	if r.Serial != 2 || r.From != whole.Without(1) || r.StepsOut() {
		t.Errorf("in: %s", r)
	}
}

func TestNoMemberIsOutThatIsNotThere(t *testing.T) {
	for _, text := range []string{`{"ring":{"size":3,"out":4}}`, `{"ring":{"size":3,"out":-1}}`, `{"ring":{"size":1,"out":1}}`, `{"from":{"size":2,"out":3}}`} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%s is read as %s", text, r)
		}
	}
	r := of("dalli", 4).Without(2)
	if got := r.Members(); !slices.Equal(got, []int32{0, 1, 3}) {
		t.Errorf("%v", got)
	}
	for ordinal, has := range map[int32]bool{-1: false, 0: true, 1: true, 2: false, 3: true, 4: false} {
		if r.Has(ordinal) != has {
			t.Errorf("member %d: %t", ordinal, !has)
		}
	}
}

// TestShareTellsWhichClientsKeepKeysWhenAnyMemberIsOut: the others keep their keys with a consistent client, whichever
// member is out.
func TestShareTellsWhichClientsKeepKeysWhenAnyMemberIsOut(t *testing.T) {
	for _, client := range []string{"pymemcache", "dalli", "libmemcached-ketama", "libmemcached-ketama-weighted"} {
		for out := range int32(4) {
			if share := Share(of(client, 4), of(client, 4).Without(out)); share > 0 {
				t.Errorf("%s without %d: %f", client, out, share)
			}
			if share := Share(of(client, 4).Without(out), of(client, 4)); share == 0 {
				t.Errorf("%s with %d again: nothing moves", client, out)
			}
		}
	}
	for _, client := range []string{"gomemcache", "dskit"} { // by position
		if share := Share(of(client, 4), of(client, 4).Without(1)); share == 0 {
			t.Errorf("%s: the others keep their keys without member 1", client)
		}
	}
	large := of("pymemcache", 512) // of a small sample
	if Share(large, large.Without(9)) > 0 || Share(large.Without(9), large) == 0 || Share(large.Without(9), large.Without(10)) == 0 {
		t.Error("a small sample misses a move")
	}
	if !slices.Contains(routing.Clients(), "dskit") {
		t.Error("dskit is no client")
	}
}

// TestRoutersAskNoOtherMember only if all have said that they are in the last state of a change, or past it.
func TestRoutersAskNoOtherMember(t *testing.T) {
	whole := of("dalli", 3)
	for state, within := range map[contract.RingState]bool{
		contract.RingStable: true, contract.RingPrepare: false, contract.RingSettle: false, contract.RingMove: false, contract.RingFinish: true,
	} {
		for _, acknowledged := range []bool{true, false} {
			table := &Table{State: state, Old: whole, New: whole.Without(1), Acknowledged: acknowledged, Since: time.Unix(0, 0)}
			if got := table.Within(whole.Without(1)); got != (within && acknowledged) {
				t.Errorf("%s, acknowledged %t: %t", state, acknowledged, got)
			}
			if table.Within(whole) {
				t.Errorf("%s: another ring", state)
			}
		}
	}
	if (*Table)(nil).Within(whole) {
		t.Error("no table")
	}
}
