package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A person may give up what a drainer is at work on: until its pod has ended, it still
// adds items by the ring of the survivors that it was made for.
func TestSizeIsHeldUntilADrainerWhoseJobIsGoneHasEnded(t *testing.T) {
	lingers := at(2).wanted(3).left(2, requested(Skip), deleting, unheld).with(func(o *Observed) { o.Drainers = []Drainer{{Pod: "drainer", ClaimUID: uid(2)}} })
	p := Next(&lingers.o)
	if p.Replicas != 2 || p.SizeBlocked != ByDrain || p.Lingering != "drainer" {
		t.Errorf("%d members, blocked by %q", p.Replicas, p.SizeBlocked)
	}
	for replicas, may := range map[int32]bool{0: true, 1: false, 2: true, 3: false} {
		if err := MaySetReplicas(&lingers.o, replicas); (err == nil) != may {
			t.Errorf("%d members: %v", replicas, err)
		}
	}
	if p := Next(&lingers.wanted(0).o); p.Replicas != 0 {
		t.Errorf("all members are to stop, and %d stay", p.Replicas)
	}
	strangers := at(2).wanted(3).with(func(o *Observed) { o.Drainers = []Drainer{{Pod: "of nobody's claim", ClaimUID: "?"}} })
	if p := Next(&strangers.o); p.Replicas != 3 {
		t.Errorf("a drainer of no claim of the cluster keeps the size at %d", p.Replicas)
	}
	due := grown(1, 2).left(2, requested(Skip), deleting, unheld).with(func(o *Observed) { o.Drainers = lingers.o.Drainers })
	if got := planned(due).Places; !slices.Equal(got, []string{"0 Waiting PlacementWaits"}) {
		t.Errorf("items are placed beside it: %v", got)
	}
	if MayPlace(&due.o, CreatePlacement{Claim: ClaimRef{Name: name(0), UID: uid(0)}, Target: due.by()}) == nil {
		t.Error("items may be placed beside it")
	}
}

// A person may give up a claim whose volume is being set aside: the claim that was to
// take it over goes first, and nothing waits for the volume that goes then.
func TestTheClaimOfAVolumeThatWasGivenUpGoesFirst(t *testing.T) {
	given := func() *scene { return at(2).left(2, deleting, where(Moved), requested(Skip)).aside(2, pending) }
	const apply = "apply the StatefulSet, 2 replicas"
	if diff := cmp.Diff([]string{apply, "give up claim data-2-aside"}, planned(given()).Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	both := at(2).left(2, deleting, where(Moved), requested(Skip)).aside(2, pending, requested(Skip))
	if diff := cmp.Diff([]string{apply, "delete claim data-2-aside: Skipped", "release claim data-2-aside: Skipped"}, planned(both).Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	aside := func(s *scene) *Claim { return &s.o.Claims[len(s.o.Claims)-1] }
	for what, test := range map[string]struct {
		live *scene
		may  bool
	}{
		"as the plan saw it":    {given(), true},
		"nobody gave it up":     {at(2).left(2, deleting, where(Moved)).aside(2, pending), false},
		"it has the volume":     {at(2).left(2, deleting, where(Moved), requested(Skip)).aside(2), false},
		"the first one is gone": {at(2).aside(2, pending), false},
		"the volume is missing": {at(2).aside(2, pending, where(Gone)), false},
		"it is given up, too":   {at(2).left(2, deleting, requested(Skip)).aside(2, pending, requested(Skip)), true},
	} {
		if err := MayGiveUpAside(&test.live.o, aside(test.live)); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
	gone := at(2).left(2, deleting, where(Moved), requested(Skip))
	if got := planned(gone).Actions; !slices.Contains(got, "release claim data-2: Skipped") {
		t.Errorf("when it is gone: %v", got)
	}
	if got := planned(at(2).aside(2, pending, where(Gone))).Drains; !slices.Equal(got, []string{"2 Waiting SettingAside"}) {
		t.Errorf("a volume that is missing may come back: %v", got)
	}
}
