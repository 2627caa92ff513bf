package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// A person may skip a claim while a drainer is at work on it. Until its pod has ended, the drainer
// still adds items by its own ring.
func TestSizeIsHeldUntilADrainerWhoseJobIsGoneHasEnded(t *testing.T) {
	lingers := at(2).wanted(3).left(2, requested(claims.Skip), deleting, unheld).with(func(o *Observed) { o.Drainers = []claims.Drainer{{Pod: "drainer", ClaimUID: uid(2)}} })
	p := Next(&lingers.o)
	if p.Replicas != 2 || p.SizeBlocked != BlockedByDrain || p.LingeringDrainer != "drainer" {
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
	strangers := at(2).wanted(3).with(func(o *Observed) { o.Drainers = []claims.Drainer{{Pod: "of no claim", ClaimUID: "?"}} })
	if p := Next(&strangers.o); p.Replicas != 3 {
		t.Errorf("a drainer of no claim of the cluster keeps the size at %d", p.Replicas)
	}
	due := grown(1, 2).left(2, requested(claims.Skip), deleting, unheld).with(func(o *Observed) { o.Drainers = lingers.o.Drainers })
	if got := planned(due).Moves; !slices.Equal(got, []string{"0 Waiting MoveWaits"}) {
		t.Errorf("items are moved beside it: %v", got)
	}
	if MayMove(&due.o, action.CreateMove{Claim: action.ClaimRef{Name: name(0), UID: uid(0)}, Target: due.by()}) == nil {
		t.Error("items may be moved beside it")
	}
}

// A person may skip a claim while its volume is being set aside. The claim that was to take the
// volume over is released first, without waiting.
func TestTheClaimOfAVolumeThatWasGivenUpGoesFirst(t *testing.T) {
	given := func() *scene {
		return at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip)).aside(2, pending)
	}
	const apply = "apply the StatefulSet, 2 replicas"
	if diff := cmp.Diff([]string{apply, "annotate claim data-2-aside with skip"}, planned(given()).Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	both := at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip)).aside(2, pending, requested(claims.Skip))
	if diff := cmp.Diff([]string{apply, "delete claim data-2-aside: Skipped", "release claim data-2-aside: Skipped"}, planned(both).Actions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	aside := func(s *scene) *claims.Claim { return &s.o.Claims[len(s.o.Claims)-1] }
	for what, test := range map[string]struct {
		live *scene
		may  bool
	}{
		"as the plan saw it":    {given(), true},
		"no person gave it up":  {at(2).left(2, deleting, where(claims.Reserved)).aside(2, pending), false},
		"it has the volume":     {at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip)).aside(2), false},
		"the first one is gone": {at(2).aside(2, pending), false},
		"the volume is missing": {at(2).aside(2, pending, where(claims.Gone)), false},
		"it is given up, too":   {at(2).left(2, deleting, requested(claims.Skip)).aside(2, pending, requested(claims.Skip)), true},
	} {
		if err := claims.MaySkipToo(&test.live.o.Facts, aside(test.live)); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
	gone := at(2).left(2, deleting, where(claims.Reserved), requested(claims.Skip))
	if got := planned(gone).Actions; !slices.Contains(got, "release claim data-2: Skipped") {
		t.Errorf("when it is gone: %v", got)
	}
}

// A person may skip the aside claim, which is to take over a volume, and not the volume's first claim.
// Kubernetes may be binding the aside claim to the volume. If the aside claim was deleted, the volume would
// be deleted with it, and the first claim would be kept without a volume. So the aside claim takes the volume
// over first.
func TestAClaimThatIsGivenUpTakesOverItsVolumeFirst(t *testing.T) {
	const apply = "apply the StatefulSet, 2 replicas"
	goes := []string{apply, "delete claim data-2-aside: Skipped", "release claim data-2-aside: Skipped"}
	for what, test := range map[string]struct {
		scene *scene
		want  []string
	}{
		"the volume is reserved for it": {at(2).left(2, deleting, where(claims.Reserved)).aside(2, pending, requested(claims.Skip)), []string{apply}},
		"it has the volume":             {at(2).left(2, deleting, where(claims.Reserved)).aside(2, requested(claims.Skip)), []string{apply, "release claim data-2: SetAside"}},
		"it never gets the volume":      {at(2).left(2, deleting, where(claims.Elsewhere)).aside(2, pending, requested(claims.Skip)), goes},
		"the first claim is gone":       {at(2).aside(2, requested(claims.Skip)), goes},
	} {
		if diff := cmp.Diff(test.want, planned(test.scene).Actions); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
}

// A volume may be deleted while it is set aside. The claim that was to take it over then waits for
// a person, and delays no other claim.
func TestAClaimWhoseVolumeWentIsToldOfAndHoldsNothingUp(t *testing.T) {
	older := func(c *claims.Claim) { c.LeavingSince = time.Unix(500, 0) }
	for what, test := range map[string]struct {
		scene  *scene
		drains []string
	}{
		"the old claim is there, its volume gone": {at(2).left(2, deleting, where(claims.Gone)).aside(2, pending), []string{"2 Failed ClaimDeleted", "2 Failed ClaimDeleted"}},
		"the old claim is gone, too":              {at(2).aside(2, pending), []string{"2 Failed ClaimDeleted"}},
		"a member left before":                    {at(2).left(3, older).aside(2, pending), []string{"3 Draining", "2 Failed ClaimDeleted"}},
		"not while the old one has the volume":    {at(2).left(2, deleting, where(claims.Reserved)).aside(2, pending), []string{"2 Waiting SettingAside", "2 Waiting SettingAside"}},
		"not when it is bound":                    {at(2).aside(2), []string{"2 Draining"}},
	} {
		t.Run(what, func(t *testing.T) {
			got := planned(test.scene)
			if diff := cmp.Diff(test.drains, got.Drains); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if told := strings.Contains(test.drains[len(test.drains)-1], "Failed"); told != (len(got.Lost) > 0) {
				t.Errorf("lost claims: %v", got.Lost)
			}
		})
	}
	given := at(2).left(2, deleting, where(claims.Gone), requested(claims.Skip)).aside(2, pending)
	if got := planned(given).Actions; !slices.Contains(got, "annotate claim data-2-aside with skip") {
		t.Errorf("a person gives up the old one, and of the other nothing is said: %v", got)
	}
}

// A cluster may be hibernated while such a drainer runs. When it resumes, it has the members that
// the drainer was created for.
func TestAClusterWakesUpBesideADrainerWhoseJobIsGone(t *testing.T) {
	asleep := at(2).wanted(3).left(2, requested(claims.Skip), deleting, unheld).with(func(o *Observed) {
		o.Drainers, o.StatefulSet.Replicas, o.Pods = []claims.Drainer{{Pod: "drainer", ClaimUID: uid(2)}}, 0, nil
	})
	p := Next(&asleep.o)
	if p.Replicas != 2 || p.SizeBlocked != BlockedByDrain || p.LingeringDrainer != "drainer" {
		t.Errorf("%d members, blocked by %q, %q", p.Replicas, p.SizeBlocked, p.LingeringDrainer)
	}
	for replicas, may := range map[int32]bool{0: true, 1: false, 2: true, 3: false} {
		if err := MaySetReplicas(&asleep.o, replicas); (err == nil) != may {
			t.Errorf("%d members: %v", replicas, err)
		}
	}
}
