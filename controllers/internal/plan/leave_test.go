package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// now is the present of these scenes.
var now = time.Unix(5000, 0)

// shrinking is a cluster of three that was told to shrink to two a second ago: the list
// names two, and member 2 is still there.
func shrinking() *scene {
	s := at(2).pod(2)
	s.left(2, func(c *claims.Claim) { c.LeavingSince = now.Add(-time.Second) })
	s.o.Now, s.o.Ready = now, []int32{0, 1, 2}
	s.o.StatefulSet.Replicas, s.o.Cluster.Patience, s.o.Cluster.MoveDeadline = 3, 90*time.Second, time.Hour
	return s
}

// mover adds the Job that moves the items of leaving member 2, with a pod that runs.
func (s *scene) mover(changes ...func(*claims.Job)) *scene {
	s.move(2, changes...)
	s.o.Drainers = append(s.o.Drainers, claims.Drainer{Pod: "mover", ClaimUID: uid(2), Target: s.by(), Running: true})
	return s
}

// idle: no pod of the Job has been at work since.
func idle(since time.Time) func(*claims.Job) { return func(j *claims.Job) { j.IdleSince = since } }

func marks(at time.Time) func(*claims.Claim) { return func(c *claims.Claim) { c.LeavingSince = at } }

func moverFailed(j *claims.Job) { j.State, j.Message = claims.JobFailed, "BackoffLimitExceeded" }

func TestALeavingMemberRunsOnWhileItsItemsAreMoved(t *testing.T) {
	const moves = "move the items of the member of claim data-2, by ring " + target
	shrinks, stays := []string{"apply the StatefulSet, 2 replicas"}, []string{"apply the StatefulSet, 3 replicas"}
	ends := append(shrinks[:1:1], "delete Job move-data-2: its member leaves now")
	gone := []string{"2 Waiting PodPresent"}
	for what, test := range map[string]struct {
		scene   *scene
		running int32
		actions []string
		drains  []string
	}{
		"told now": {at(3).wanted(2).with(func(o *Observed) {
			o.Ready, o.Cluster.Patience, o.Now = []int32{0, 1, 2}, time.Minute, now
		}), 3, []string{"mark claim data-2 as leaving", "apply the StatefulSet, 3 replicas", "prepare to " + moves}, []string{"2 Leaving"}},
		"told a second ago": {shrinking(), 3, []string{"apply the StatefulSet, 3 replicas", moves}, []string{"2 Leaving"}},
		"its mover runs": {shrinking().mover().change(2, marks(now.Add(-time.Hour))), 3,
			[]string{"apply the StatefulSet, 3 replicas"}, []string{"2 Leaving"}},
		"its mover has a minute to start": {shrinking().move(2), 3, []string{"apply the StatefulSet, 3 replicas"}, []string{"2 Leaving"}},
		"two leave, one is moved": {shrinking().mover(allMoved).pod(3).left(3, marks(now.Add(-time.Second))).with(func(o *Observed) {
			o.Drainers, o.StatefulSet.Replicas, o.Ready = nil, 4, []int32{0, 1, 2, 3}
		}), 4, []string{"apply the StatefulSet, 4 replicas", "move the items of the member of claim data-3, by ring " + target},
			[]string{"3 Leaving", "2 Leaving InTurn"}},

		"its mover runs for longer than it can": {shrinking().mover().change(2, marks(now.Add(-time.Hour-2*time.Minute))), 2, ends, gone},
		"its mover has not started in time":     {shrinking().move(2).change(2, marks(now.Add(-2*time.Minute))), 2, ends, gone},
		"its mover's pod is gone":               {shrinking().move(2, idle(now.Add(-59*time.Second))).change(2, marks(now.Add(-time.Hour))), 3, stays, []string{"2 Leaving"}},
		"its mover's next pod does not start":   {shrinking().move(2, idle(now.Add(-time.Minute))).change(2, marks(now.Add(-time.Hour))), 2, ends, gone},
		"no mover was made in time":             {shrinking().change(2, marks(now.Add(-2*time.Minute))), 2, shrinks, gone},
		"a mark of tomorrow":                    {shrinking().change(2, marks(now.Add(24*time.Hour))), 2, shrinks, gone},
		"its mover has ended well":              {shrinking().mover(allMoved).with(noMovers), 2, shrinks, gone},
		"its mover has failed":                  {shrinking().mover(moverFailed).with(noMovers), 2, shrinks, gone},
		"its mover is being deleted":            {shrinking().mover(func(j *claims.Job) { j.Deleting = true }), 2, shrinks, gone},
		"its mover gives by another ring":       {shrinking().mover(byAnother), 2, ends, gone},
		"it is not ready":                       {shrinking().mover().with(func(o *Observed) { o.Ready = []int32{0, 1} }), 2, ends, gone},
		"a person wants it again":               {shrinking().mover().wanted(3), 2, ends, gone},
		"a person holds its drain":              {shrinking().mover().change(2, requested(claims.Hold)), 2, ends, []string{"2 Held Held"}},
		"a person gives its items up":           {shrinking().mover().change(2, requested(claims.Skip)), 2, ends, gone},
		"patience is 0":                         {shrinking().mover().with(func(o *Observed) { o.Cluster.Patience = 0 }), 2, ends, gone},
		"move is off":                           {shrinking().mover().with(func(o *Observed) { o.Cluster.MovesOff = true }), 2, ends, gone},
		"claims are retained":                   {shrinking().mover().with(func(o *Observed) { o.Cluster.Policy = claims.Retain }), 2, ends, gone},
		"all stop": {shrinking().mover().wanted(0), 0,
			[]string{"apply the StatefulSet, 0 replicas", "delete Job move-data-2: its member leaves now"}, gone},
		"newer items are moved first": {shrinking().with(func(o *Observed) {
			o.Record.Serial, o.Record.From = 6, o.Cluster.Ring.Of(2)
		}), 2, []string{"apply the StatefulSet, 2 replicas", "move the items of the member of claim data-1, by ring " + target, "move the items of the member of claim data-0, by ring " + target}, gone},
	} {
		t.Run(what, func(t *testing.T) {
			p, got := Next(&test.scene.o), planned(test.scene)
			if p.Running != test.running {
				t.Errorf("%d run, want %d", p.Running, test.running)
			}
			if diff := cmp.Diff(test.actions, got.Actions); diff != "" {
				t.Errorf("actions: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(test.drains, got.Drains); diff != "" {
				t.Errorf("drains: -want +got:\n%s", diff)
			}
		})
	}
}

func noMovers(o *Observed) { o.Drainers = nil }

// There is no event if a mover doesn't start.
func TestTheEndOfTheWaitForAMoverBringsAPlan(t *testing.T) {
	s := shrinking().move(2)
	if p, want := Next(&s.o), now.Add(moverStartsWithin-time.Second); !p.Wake.Equal(want) {
		t.Errorf("the next plan is at %s, want %s", p.Wake, want)
	}
}

// TestTheEndOfTheWaitForAMoverThatRunsBringsAPlan, because there is no event if its node is gone.
func TestTheEndOfTheWaitForAMoverThatRunsBringsAPlan(t *testing.T) {
	began := now.Add(-30 * time.Minute)
	s := shrinking().mover().change(2, marks(began))
	if p, want := Next(&s.o), began.Add(2*moverStartsWithin+s.o.Cluster.MoveDeadline); !p.Wake.Equal(want) {
		t.Errorf("the next plan is at %s, want %s", p.Wake, want)
	}
}

// The end of the wait for a mover's next pod brings a plan.
func TestTheEndOfTheWaitForAMoversNextPodBringsAPlan(t *testing.T) {
	s := shrinking().move(2, idle(now.Add(-time.Second))).change(2, marks(now.Add(-30*time.Minute)))
	if p, want := Next(&s.o), now.Add(moverStartsWithin-time.Second); !p.Wake.Equal(want) {
		t.Errorf("the next plan is at %s, want %s", p.Wake, want)
	}
}

// TestAMemberThatIsMovedStaysForTheOthersBelowIt: leaving members leave together, in whatever order
// they are moved.
func TestAMemberThatIsMovedStaysForTheOthersBelowIt(t *testing.T) {
	s := shrinking().mover().pod(3).left(3, marks(now.Add(-time.Second))).move(3, allMoved)
	s.o.StatefulSet.Replicas, s.o.Ready = 4, []int32{0, 1, 2, 3}
	if p := Next(&s.o); p.Running != 4 {
		t.Errorf("%d run, want 4", p.Running)
	}
}

// TestAMemberWhoseClaimIsDeletedLeavesAtOnce, because setting its volume aside waits for its pod's
// end.
func TestAMemberWhoseClaimIsDeletedLeavesAtOnce(t *testing.T) {
	if p := Next(&shrinking().mover().change(2, deleting).o); p.Running != 2 {
		t.Errorf("%d run, want 2", p.Running)
	}
}

// The result of the mover is reported once, when its Job is deleted.
func TestAMoversReceiptGoesWithItsJob(t *testing.T) {
	for what, test := range map[string]struct {
		end  func(*claims.Job)
		want bool
	}{
		"it ended well":        {allMoved, true},
		"it failed":            {moverFailed, false},
		"its receipt is short": {func(j *claims.Job) { allMoved(j); j.Receipt = shortOf(types.UID(j.Receipt.Source)) }, false},
	} {
		s := shrinking().mover(test.end).with(noMovers).with(func(o *Observed) { o.StatefulSet.Replicas = 2 })
		var deleted *action.DeleteJob
		for _, a := range Next(&s.o).Actions {
			if d, ok := a.(action.DeleteJob); ok {
				deleted = &d
			}
		}
		switch {
		case deleted == nil:
			t.Errorf("%s: the Job stays", what)
		case (deleted.Moved != nil) != test.want || deleted.Claim.UID != uid(2):
			t.Errorf("%s: %+v", what, deleted)
		}
	}
}

func TestMovingLiveIsCheckedLive(t *testing.T) {
	a := func(s *scene) action.CreateMove {
		return action.CreateMove{Claim: action.ClaimRef{Name: name(2), UID: uid(2), Ordinal: 2}, Target: s.by(), Members: 2}
	}
	for what, test := range map[string]struct {
		change func(*scene)
		may    bool
	}{
		"as planned":                {func(*scene) {}, true},
		"others are being moved":    {func(s *scene) { s.move(1) }, true},
		"the member is gone":        {func(s *scene) { s.o.StatefulSet.Replicas = 2 }, false},
		"it is wanted again":        {func(s *scene) { s.wanted(3) }, false},
		"all members are to stop":   {func(s *scene) { s.wanted(0) }, false},
		"its claim is deleted":      {func(s *scene) { s.change(2, deleting) }, false},
		"it is held":                {func(s *scene) { s.change(2, requested(claims.Hold)) }, false},
		"another ring is announced": {func(s *scene) { s.o.Record = ring.Record{Ring: s.o.Record.Ring, Serial: 9} }, false},
		"it is being moved":         {func(s *scene) { s.mover() }, false},
		"a drain runs":              {func(s *scene) { s.left(3).job(3, 2) }, false},
	} {
		s := shrinking()
		planned := a(s)
		test.change(s)
		if err := MayMove(&s.o, planned); (err == nil) != test.may {
			t.Errorf("%s: %v", what, err)
		}
	}
}
