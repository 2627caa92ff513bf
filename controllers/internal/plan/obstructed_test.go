package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
)

// refusedUntil is when the steps about obstructed claims are tried again.
var refusedUntil = time.Unix(5000, 0)

// obstructed: the API server has refused the last step about the claim, a moment ago.
func (s *scene) obstructed(uids ...types.UID) *scene {
	s.o.Now = refusedUntil.Add(-time.Second)
	for _, c := range uids {
		if s.o.Obstructed == nil {
			s.o.Obstructed = map[types.UID]claims.Obstruction{}
		}
		s.o.Obstructed[c] = claims.Obstruction{Why: "no more than two claims", Until: refusedUntil}
	}
	return s
}

// later lets the time pass after which the steps are tried again.
func (s *scene) later() *scene {
	s.o.Now = refusedUntil
	return s
}

func newest(c *claims.Claim) { c.Left = 9 }

// A drain whose Job can't be created delays no other drain, no move and no change of size.
func TestADrainWhoseJobCannotBeMadeHoldsUpNoOther(t *testing.T) {
	s := at(1).left(2, newest).left(1).obstructed(uid(2)).with(func(o *Observed) {
		o.Obstructed[uid(2)] = claims.Obstruction{Why: "Job data-2-drain belongs to another owner", Taken: true, Until: refusedUntil}
	})
	got := planned(s)
	if want := []string{"2 Failed NameTaken", "1 Draining"}; !slices.Equal(got.Drains, want) {
		t.Errorf("drains are %v, want %v", got.Drains, want)
	}
	if want := []string{"apply the StatefulSet, 1 replicas", "drain claim data-1 into 1 survivors"}; !slices.Equal(got.Actions, want) {
		t.Error(cmp.Diff(want, got.Actions))
	}
	if p := Next(&s.o); !p.Wake.Equal(refusedUntil) {
		t.Errorf("it is tried again at %s", p.Wake)
	}
}

// If the API server refuses a step about one volume, other volumes are drained, items are moved,
// and the size changes. The step is tried again, and delays nothing then either.
func TestAStepThatIsRefusedHoldsUpNoOtherClaim(t *testing.T) {
	failed := func(c *claims.Claim) { c.Finalizer = true }
	for what, test := range map[string]struct {
		change func(*claims.Claim)
		with   func(*scene) *scene
		phase  string
		tries  []string // when it is time
		drains bool     // and then a drain begins, which comes before moves
	}{
		"no claim that takes over its volume": {change: deleting, phase: "Failed Refused", tries: []string{"reserve volume pv-2 of claim data-2 for claim data-2-aside", "create claim data-2-aside for volume pv-2 of claim data-2"}},
		"its receipt can't be written":        {change: failed, with: func(s *scene) *scene { return s.job(2, 2, complete) }, phase: "Failed Refused", tries: []string{"record the receipt of claim data-2"}},
		"it can't be deleted":                 {change: drained, phase: "Failed Refused", tries: []string{"delete claim data-2: Drained", "release claim data-2: Drained"}},
		"it can't be released":                {change: func(c *claims.Claim) { drained(c); c.Deleting = true }, phase: "Failed Refused", tries: []string{"release claim data-2: Drained"}},
		"it gets no finalizer":                {change: unheld, phase: "Failed Refused", tries: []string{"add the finalizer to claim data-2"}, drains: true},
		"its failure can't be counted":        {change: failed, with: func(s *scene) *scene { return s.job(2, 2, outOfTime) }, phase: "Failed Refused", tries: []string{"count failure 1 of claim data-2", "delete Job job-data-2: it failed, and is tried again"}},
		"its first claim can't be released":   {change: func(c *claims.Claim) { deleting(c); c.Where = claims.Reserved }, with: func(s *scene) *scene { return s.aside(2, newest) }, phase: "Failed Refused", tries: []string{"release claim data-2: SetAside"}},
	} {
		t.Run(what, func(t *testing.T) {
			with := func(from int32) *scene {
				s := grown(from, 2).left(2, newest, test.change)
				if test.with != nil {
					s = test.with(s)
				}
				return s.obstructed(uid(2))
			}
			others := with(2).moved(0).moved(1).left(3) // these volumes are older, and drained after the other
			got := planned(others)
			if !slices.Contains(got.Actions, "drain claim data-3 into 2 survivors") {
				t.Errorf("the other volume is not drained: %v, %v", got.Drains, got.Actions)
			}
			if !slices.Contains(got.Drains, "2 "+test.phase) {
				t.Errorf("it is %v, want %s", got.Drains, test.phase)
			}
			for _, try := range test.tries {
				if slices.Contains(got.Actions, try) {
					t.Errorf("before its time: %s", try)
				}
			}
			if p := Next(&others.o); !p.Wake.Equal(refusedUntil) {
				t.Errorf("it is tried again at %s", p.Wake)
			}
			for name, s := range map[string]*scene{"now": with(3), "when it is tried again": with(3).later()} {
				if test.drains && name != "now" {
					continue
				}
				if got := planned(s); !slices.Contains(got.Moves, "0 Moving") {
					t.Errorf("%s, no items are moved: %v, %v", name, got.Moves, got.Drains)
				}
			}
			got = planned(others.later())
			for _, try := range test.tries {
				if !slices.Contains(got.Actions, try) {
					t.Errorf("it is not tried again: %s\n%v", try, got.Actions)
				}
			}
			if got := planned(with(2).moved(0).moved(1).wanted(1)); got.Replicas != 1 {
				t.Errorf("the size stays at %d: %s", got.Replicas, got.Blocked)
			}
		})
	}
}

// A member's volume that can't be set aside delays only that member.
func TestAMembersVolumeThatCannotBeSetAsideHoldsUpNothingElse(t *testing.T) {
	deleted := func() *scene { return at(2).left(2).change(0, deleting).obstructed(uid(0)) }
	for what, s := range map[string]*scene{"now": deleted(), "when it is tried again": deleted().later()} {
		got := planned(s)
		if !slices.Contains(got.Actions, "drain claim data-2 into 2 survivors") || !slices.Contains(got.Lost, "data-0") {
			t.Errorf("%s: %v, %v, %v", what, got.Actions, got.Drains, got.Lost)
		}
		if tries := slices.Contains(got.Actions, "create claim data-0-aside for volume pv-0 of claim data-0"); tries != (what != "now") {
			t.Errorf("%s it is tried: %v", what, tries)
		}
	}
	if got := planned(deleted().later().job(2, 2)); slices.ContainsFunc(got.Actions, func(a string) bool {
		return a == "delete Job job-data-2: claim data-0 was deleted: its volume is set aside first, since its items may be newer"
	}) {
		t.Errorf("a drain that runs is ended each time: %v", got.Actions)
	}
}

// A claim that can't be marked only delays the change of size.
func TestAMarkThatIsRefusedKeepsTheSizeAndNoMore(t *testing.T) {
	s := at(3).wanted(2).obstructed(uid(2))
	got := planned(s)
	if want := []string{"apply the StatefulSet, 3 replicas"}; got.Replicas != 3 || got.Blocked != BlockedByRefusal || !slices.Equal(got.Actions, want) {
		t.Errorf("%d members, blocked %q, %v", got.Replicas, got.Blocked, got.Actions)
	}
	if p := Next(&s.o); !p.Wake.Equal(refusedUntil) {
		t.Errorf("it is tried again at %s", p.Wake)
	}
	if got := planned(s.later()); got.Replicas != 2 || got.Blocked != NotBlocked {
		t.Errorf("it is not tried again: %d members, blocked %q", got.Replicas, got.Blocked)
	}
}
