package plan

import (
	"slices"
	"testing"
)

// A person may give up what a drainer is at work on: until its pod has ended, it still
// adds items by the ring of the survivors that it was made for.
func TestSizeIsHeldUntilADrainerWhoseJobIsGoneHasEnded(t *testing.T) {
	lingers := at(2).wanted(3).with(func(o *Observed) { o.Movers = []Mover{{ClaimUID: uid(2), Survivors: 2}} })
	p := Next(&lingers.o)
	if p.Replicas != 2 || p.SizeBlocked != ByDrain {
		t.Errorf("%d members, blocked by %q", p.Replicas, p.SizeBlocked)
	}
	for replicas, may := range map[int32]bool{1: false, 2: true, 3: false} {
		if err := MaySetReplicas(&lingers.o, replicas); (err == nil) != may {
			t.Errorf("%d members: %v", replicas, err)
		}
	}
	due := grown(1, 2).with(func(o *Observed) { o.Movers = lingers.o.Movers })
	if got := planned(due).Places; !slices.Equal(got, []string{"0 Waiting PlacementWaits"}) {
		t.Errorf("items are placed beside it: %v", got)
	}
	if MayPlace(&due.o, CreatePlacement{Claim: ClaimRef{Name: name(0), UID: uid(0)}, Target: due.by()}) == nil {
		t.Error("items may be placed beside it")
	}
}

// A person may give up a claim whose volume is being set aside: the volume goes with it,
// and the claim that was to take it over has nothing to wait for.
func TestTheClaimOfAVolumeThatWasGivenUpGoes(t *testing.T) {
	for where, want := range map[Where]string{Gone: "2 Releasing NeverBound", Here: "2 Waiting SettingAside", Forbidden: "2 Waiting SettingAside"} {
		s := at(2).aside(2, pending, func(c *Claim) { c.Where = where })
		if got := planned(s).Drains; !slices.Equal(got, []string{want}) {
			t.Errorf("the volume is %d: %v, want %s", where, got, want)
		}
		c := &s.o.Claims[len(s.o.Claims)-1]
		if err := MayRelease(&s.o.Cluster, c, NeverBound); (err == nil) != (where == Gone) {
			t.Errorf("the volume is %d: %v", where, err)
		}
	}
}
