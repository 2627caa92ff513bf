package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// decided is what the operator wrote beside the leaving mark.
func decided(policy claims.DrainPolicy) func(*claims.Claim) {
	return func(c *claims.Claim) { c.Decided, c.Policy = true, policy }
}

// The policy for a volume is decided when its member leaves. A later policy deletes no volume that
// was kept, and drains no volume that was not to be drained; a person's request still counts.
func TestAPolicyHoldsForTheVolumesThatWereLeftUnderIt(t *testing.T) {
	const apply = "apply the StatefulSet, 2 replicas"
	for what, test := range map[string]struct {
		now   claims.DrainPolicy
		scene *scene
		want  []string
	}{
		"kept, and Delete now":            {claims.Delete, at(2).left(2, decided(claims.Retain), unheld), []string{apply}},
		"kept, and Drain now":             {claims.Drain, at(2).left(2, decided(claims.Retain), unheld), []string{apply}},
		"about to be kept, and Drain now": {claims.Drain, at(2).left(2, decided(claims.Retain)), []string{apply, "release claim data-2: Retained"}},
		"to be drained, and Delete now":   {claims.Delete, at(2).left(2, decided(claims.Drain)), []string{apply, "drain claim data-2 into 2 survivors"}},
		"to be drained, and Retain now":   {claims.Retain, at(2).left(2, decided(claims.Drain)), []string{apply, "drain claim data-2 into 2 survivors"}},
		"given up, and Drain now": {claims.Drain, at(2).left(2, decided(claims.Delete)),
			[]string{apply, "delete claim data-2: Deleted", "release claim data-2: Deleted"}},
		"kept, and a person gives it up": {claims.Drain, at(2).left(2, decided(claims.Retain), unheld, requested(claims.Skip)), []string{apply, "delete claim data-2: Skipped"}},
		"kept, and a person wants it drained": {claims.Retain, at(2).left(2, decided(claims.Retain), unheld, requested(claims.Retry)),
			[]string{"add the finalizer to claim data-2", apply, "clear the retry of claim data-2", "drain claim data-2 into 2 survivors"}},
		"kept ones let others be drained": {claims.Drain, at(1).left(2, decided(claims.Retain), unheld, func(c *claims.Claim) { c.Left = 9 }).left(1, decided(claims.Drain)),
			[]string{"apply the StatefulSet, 1 replicas", "drain claim data-1 into 1 survivors"}},
	} {
		t.Run(what, func(t *testing.T) {
			test.scene.o.Cluster.Policy = test.now
			if diff := cmp.Diff(test.want, planned(test.scene).Actions); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A volume that can't be read is kept if that was decided when its member left.
func TestAVolumeThatCannotBeReadIsKeptAsWasDecided(t *testing.T) {
	for _, release := range []bool{false, true} {
		s := at(2).left(2, decided(claims.Drain), func(c *claims.Claim) { c.ReleaseUnreadable = release }).job(2, 2, unreadable)
		s.o.Cluster.ReleaseUnreadable = !release
		deletes := strings.Contains(strings.Join(planned(s).Actions, "\n"), "delete claim")
		if deletes != release {
			t.Errorf("it was to be given up: %v; it is: %v", release, deletes)
		}
	}
}

// The number of a mark is higher than all present numbers, even those that another client wrote.
func TestMarksAreCounted(t *testing.T) {
	marks := func(numbers ...int64) (all []claims.Claim) {
		for _, n := range numbers {
			all = append(all, claims.Claim{LeavingSince: time.Unix(1000, 0), Left: n})
		}
		return all
	}
	for _, test := range []struct {
		there []claims.Claim
		want  int64
	}{{nil, 1}, {marks(0), 1}, {marks(1, 3, 2), 4}, {marks(4, 1<<53), 5}} {
		if got := claims.NextLeft(test.there); got != test.want {
			t.Errorf("after %v the next is %d, want %d", test.there, got, test.want)
		}
	}
}

// Two replicas of the operator may have different clocks: the older volume has the later time.
func TestTheOrderOfDrainsIsNotThatOfClocks(t *testing.T) {
	older := func(c *claims.Claim) { c.Left, c.LeavingSince = 1, time.Unix(9000, 0) }
	newer := func(c *claims.Claim) { c.Left, c.LeavingSince = 2, time.Unix(1000, 0) }
	s := at(1).left(2, older).left(1, newer)
	want := []string{"2 Waiting InTurn", "1 Draining"}
	if diff := cmp.Diff(want, planned(s).Drains); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	err := MayDrain(&s.o, action.CreateDrain{Claim: action.ClaimRef{Name: name(2), UID: uid(2), Ordinal: 2}, Survivors: action.Range{Count: 1}})
	if err == nil {
		t.Error("live, nothing stands against draining the older one first")
	}
}
