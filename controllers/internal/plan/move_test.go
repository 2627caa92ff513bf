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

// grown is a cluster of size members whose ring has just grown. The items of the first members have
// to be moved.
func grown(from, size int32) *scene {
	s := at(size)
	s.o.Ready = append([]int32(nil), s.o.Pods...)
	s.o.Record.Serial, s.o.Record.From = 5, s.o.Cluster.Ring.Of(from)
	return s
}

// move adds the Job that moves the member's items.
func (s *scene) move(ordinal int32, changes ...func(*claims.Job)) *scene {
	j := claims.Job{Name: "move-" + name(ordinal), UID: "move-" + uid(ordinal), ClaimUID: uid(ordinal), Target: s.by()}
	for _, change := range changes {
		change(&j)
	}
	s.o.Moves = append(s.o.Moves, j)
	return s
}

// moved: the member's items are on their owners.
func (s *scene) moved(ordinal int32) *scene {
	return s.change(ordinal, func(c *claims.Claim) { c.Moved = 5 })
}

func (s *scene) change(ordinal int32, change func(*claims.Claim)) *scene {
	for i := range s.o.Claims {
		if s.o.Claims[i].Ordinal == ordinal {
			change(&s.o.Claims[i])
		}
	}
	return s
}

// movers adds the Jobs of n moves that are being deleted, and may still run.
func (s *scene) movers(n int) *scene {
	for range n {
		s.o.Moves = append(s.o.Moves, claims.Job{ClaimUID: "another", Target: s.by(), Deleting: true})
	}
	return s
}

func asked(r claims.Request) func(*claims.Claim) {
	return func(c *claims.Claim) { c.MoveRequest = r }
}

func allMoved(j *claims.Job) {
	j.State, j.Receipt = claims.JobComplete, receiptFor(types.UID(ring.Source(j.ClaimUID, j.Target)))
}

func byAnother(j *claims.Job) { j.Target = "4-beef" }

func TestItemsAreMovedMemberByMember(t *testing.T) {
	off := func(o *Observed) { o.Cluster.MovesOff = true }
	for what, test := range map[string]struct {
		scene *scene
		want  outcome
	}{
		"nothing is due": {at(3), outcome{Replicas: 3, Actions: []string{"apply the StatefulSet, 3 replicas"}}},
		"several at a time": {grown(2, 3), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-1, by ring 5-cafe", "move the items of the member of claim data-0, by ring 5-cafe"},
			Moves:   []string{"1 Moving", "0 Moving"}}},
		"as many as may run": {grown(2, 3).movers(mostMovers), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"1 Waiting InTurn", "0 Waiting InTurn"}}},
		"it runs": {grown(2, 3).move(1), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-0, by ring 5-cafe"},
			Moves:   []string{"1 Moving", "0 Moving"}}},
		"it has ended well": {grown(2, 3).move(1, allMoved), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "record that the items of the member of claim data-1 are moved by ring 5-cafe", "move the items of the member of claim data-0, by ring 5-cafe"},
			Moves:   []string{"1 Moving", "0 Moving"}}},
		"it is recorded": {grown(2, 3).moved(1).move(1, allMoved), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-1: its member has nothing to move", "move the items of the member of claim data-0, by ring 5-cafe"},
			Moves:   []string{"0 Moving"}}},
		"all are": {grown(2, 3).moved(0).moved(1), outcome{Replicas: 3, Actions: []string{"apply the StatefulSet, 3 replicas"}}},
		"the receipt is a drain's": {grown(1, 3).move(0, complete), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"0 Failed ReceiptInvalid"}}},
		"it failed": {grown(1, 3).move(0, outOfTime), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"0 Failed JobFailed"}}},
		"it failed, retry": {grown(1, 3).move(0, outOfTime).change(0, asked(claims.Retry)), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-0: a person asked for a retry", "clear the move's retry of claim data-0"},
			Moves:   []string{"0 Waiting InTurn"}}},
		"it failed, skip": {grown(1, 3).move(0, outOfTime).change(0, asked(claims.Skip)), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "record that the items of the member of claim data-0 are moved by ring 5-cafe"},
			Moves:   []string{"0 Waiting InTurn"}}},
		"it failed, Off": {grown(1, 3).move(0, outOfTime).with(off), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-0: its member has nothing to move"}}},
		"by another ring": {grown(1, 3).move(0, byAnother), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-0: the ring has changed, or a member is lost"}, Moves: []string{"0 Waiting InTurn"}}},
		"Off": {grown(2, 3).with(off), outcome{Replicas: 3, Actions: []string{"apply the StatefulSet, 3 replicas"}}},
		"a member isn't ready": {grown(1, 3).with(func(o *Observed) { o.Ready = []int32{0, 1} }), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"0 Waiting MoveWaits"}}},
		"one whose claim was deleted": {grown(1, 3).change(0, deleting).change(0, inUse), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Lost: []string{"data-0"}}},
		"a drain goes first": {grown(2, 2).left(2).job(2, 2), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas"}, Drains: []string{"2 Draining"}, Moves: []string{"1 Waiting MoveWaits", "0 Waiting MoveWaits"}}},
		"a failed drain doesn't": {grown(1, 2).left(2).job(2, 2, outOfTime), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas", "move the items of the member of claim data-0, by ring 5-cafe"},
			Drains:  []string{"2 Failed JobFailed"}, Moves: []string{"0 Moving"}}},
		"older values come after": {grown(1, 3).aside(2), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-0, by ring 5-cafe"},
			Drains:  []string{"2 Waiting InTurn"}, Moves: []string{"0 Moving"}}},
		"smaller, but not now": {grown(1, 3).wanted(2), outcome{Replicas: 3, Blocked: BlockedByMove,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-0, by ring 5-cafe"}, Moves: []string{"0 Moving"}}},
		"larger, but not now": {grown(1, 3).wanted(4), outcome{Replicas: 3, Blocked: BlockedByMove,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-0, by ring 5-cafe"}, Moves: []string{"0 Moving"}}},
		"smaller, Off while it runs": {grown(1, 3).wanted(2).move(0).with(off), outcome{Replicas: 3, Blocked: BlockedByMove,
			Actions: []string{"apply the StatefulSet, 3 replicas", "delete Job move-data-0: its member has nothing to move"}}},
		"hibernation": {grown(1, 3).wanted(0).move(0), outcome{
			Actions: []string{"apply the StatefulSet, 0 replicas", "delete Job move-data-0: the cluster hibernates"}}},
		"fewer after hibernation: first as many as there were": {grown(1, 3).wanted(2).with(func(o *Observed) {
			o.StatefulSet.Replicas, o.Pods, o.Ready = 0, nil, nil
		}), outcome{Replicas: 3, Blocked: BlockedByMove, Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"0 Waiting MoveWaits"}}},
		"deletion": {grown(1, 3).move(0).with(func(o *Observed) { o.Cluster.Deleting = true }), outcome{
			Actions: []string{"delete Job move-data-0: the Memcached is deleted", "delete the StatefulSet"}}},
	} {
		t.Run(what, func(t *testing.T) {
			if diff := cmp.Diff(test.want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMoveIsCheckedLive(t *testing.T) {
	planned := action.CreateMove{Claim: action.ClaimRef{Name: name(0), UID: uid(0)}, Target: grown(1, 3).by()}
	for what, test := range map[string]struct {
		live *scene
		may  bool
	}{
		"as the plan saw it":             {grown(1, 3), true},
		"moved by now":                   {grown(1, 3).moved(0), false},
		"the claim is gone":              {grown(1, 3).with(func(o *Observed) { o.Claims = nil }), false},
		"told to leave, but listed":      {grown(1, 3).change(0, func(c *claims.Claim) { c.PlanMark() }), true},
		"another ring":                   {grown(1, 3).with(func(o *Observed) { o.Record.Serial = 6 }), false},
		"a drain runs":                   {grown(1, 3).left(3).job(3, 3), false},
		"another move runs":              {grown(2, 3).move(1), true},
		"as many as may run do":          {grown(2, 3).movers(mostMovers), false},
		"a drainer of another ring runs": {grown(2, 3).with(func(o *Observed) { o.Drainers = []claims.Drainer{{ClaimUID: uid(1), Target: "4-beef"}} }), false},
		"a Job of another ring begins": {grown(2, 3).move(1).with(func(o *Observed) {
			o.Moves[0].Target = "4-beef"
		}), false},
		"a drainer of the member runs": {grown(2, 3).with(func(o *Observed) {
			o.Drainers = []claims.Drainer{{ClaimUID: uid(0), Target: grown(2, 3).by()}}
		}), false},
		"members are not there":   {grown(1, 3).with(func(o *Observed) { o.StatefulSet.Replicas = 2 }), false},
		"no StatefulSet is there": {grown(1, 3).with(func(o *Observed) { o.StatefulSet = StatefulSet{} }), false},
	} {
		t.Run(what, func(t *testing.T) {
			if err := MayMove(&test.live.o, planned); (err == nil) != test.may {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSizeIsHeldLiveUntilItemsAreMoved(t *testing.T) {
	for what, test := range map[string]struct {
		live *scene
		size int32
		may  bool
	}{
		"the size of the ring":            {grown(1, 3), 3, true},
		"fewer":                           {grown(1, 3).change(2, func(c *claims.Claim) { c.PlanMark() }), 2, false},
		"more":                            {grown(1, 3), 4, false},
		"none":                            {grown(1, 3), 0, true},
		"more, moved":                     {grown(1, 3).moved(0), 4, true},
		"more, moved, with a Job left":    {grown(1, 3).moved(0).move(0), 4, false},
		"those that are there in any way": {grown(1, 3).with(func(o *Observed) { o.StatefulSet.Replicas = 4 }), 4, true},
	} {
		t.Run(what, func(t *testing.T) {
			if err := MaySetReplicas(&test.live.o, test.size); (err == nil) != test.may {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNoMemberOfTheRingIsMarkedUntilItemsAreMoved(t *testing.T) {
	for what, test := range map[string]struct {
		live    *scene
		ordinal int32
		may     bool
	}{
		"a member of the ring":                   {grown(1, 3), 2, false},
		"one that is not on it yet":              {grown(1, 3), 3, true},
		"one that joined since":                  {grown(1, 3).wanted(4).with(func(o *Observed) { o.StatefulSet.Replicas = 4 }), 3, false},
		"beside a volume that is to be drained":  {at(2).wanted(1).left(2), 1, false},
		"beside one that was told to leave, too": {at(3).wanted(1).change(2, func(c *claims.Claim) { c.PlanMark() }), 1, true},
		"beside a drain that the cache lacked":   {at(3).wanted(2).aside(1).job(7, 3), 2, false},
		"beside one that goes on":                {at(3).wanted(2).aside(1).job(7, 3, outOfTime, podKept), 2, false},
		"beside a mark that a person wrote":      {marked(grown(1, 4), 1), 3, false},
		"all are moved":                          {grown(1, 3).moved(0), 2, true},
		"nothing is due":                         {at(3), 2, true},
	} {
		t.Run(what, func(t *testing.T) {
			if err := MayMark(&test.live.o, test.ordinal); (err == nil) != test.may {
				t.Errorf("%v", err)
			}
		})
	}
}

// A move's receipt proves nothing about the member's volume. A move's receipt never counts as a drain's.
func TestReceiptOfAMoveReleasesNothing(t *testing.T) {
	job := claims.Job{ClaimUID: uid(2), Target: grown(2, 3).by()}
	allMoved(&job)
	p := Next(&at(2).left(2, func(c *claims.Claim) { c.Receipt = job.Receipt }).o)
	for _, a := range p.Actions {
		switch a.(type) {
		case action.DeleteClaim, action.ReleaseClaim:
			t.Errorf("%s", a)
		}
	}
	if err := claims.MayRelease(&claims.Terms{}, &claims.Claim{Name: name(2), UID: uid(2), LeavingSince: time.Now(), Receipt: job.Receipt}, action.ByReceipt, false); err == nil {
		t.Error("it lets the claim go")
	}
	s := at(2).left(2).job(2, 2, func(j *claims.Job) { j.State, j.Receipt = claims.JobComplete, job.Receipt })
	if got := planned(s); len(got.Drains) != 1 || got.Drains[0] != "2 Failed ReceiptInvalid" {
		t.Errorf("%v", got)
	}
}

// The items of a departed member and those of running members reach clients by one ring at a time,
// the newest values first.
func TestOlderValuesComeLater(t *testing.T) {
	behind := func(o *Observed) { o.ListSize, o.Record.Ring.Size, o.Ready = 1, 1, nil }
	moves := func(target string) func(*Observed) {
		return func(o *Observed) { o.Drainers = []claims.Drainer{{ClaimUID: "of another", Target: target}} }
	}
	for what, test := range map[string]struct {
		scene *scene
		want  outcome
	}{
		"a drain of a member that left with the ring goes first": {grown(2, 2).left(2).with(func(o *Observed) { o.Record.From.Size = 3 }), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas", "drain claim data-2 into 2 survivors"},
			Drains:  []string{"2 Draining"}, Moves: []string{"1 Waiting MoveWaits", "0 Waiting MoveWaits"}}},
		"that of one that left earlier comes after": {grown(1, 2).left(2).with(func(o *Observed) { o.Record.From.Size = 1 }), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas", "move the items of the member of claim data-0, by ring 5-cafe"},
			Drains:  []string{"2 Waiting InTurn"}, Moves: []string{"0 Moving"}}},
		"none while clients look among fewer members": {at(2).left(2).with(behind), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas"}, Drains: []string{"2 Waiting InTurn"}}},
		"none beside a drainer whose move is gone": {at(2).left(2).with(moves(at(2).by())), outcome{Replicas: 2,
			Actions: []string{"apply the StatefulSet, 2 replicas"}, Drains: []string{"2 Waiting InTurn"}}},
		"no move beside a drainer of another ring": {grown(1, 3).with(moves("4-beef")), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas"}, Moves: []string{"0 Waiting MoveWaits"}}},
		"one beside a drainer of the same": {grown(1, 3).with(moves(grown(1, 3).by())), outcome{Replicas: 3,
			Actions: []string{"apply the StatefulSet, 3 replicas", "move the items of the member of claim data-0, by ring 5-cafe"}, Moves: []string{"0 Moving"}}},
	} {
		t.Run(what, func(t *testing.T) {
			if diff := cmp.Diff(test.want, planned(test.scene)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestClientsAreToldOfNoMoreMembersUntilItemsAreMoved(t *testing.T) {
	for what, test := range map[string]struct {
		scene *scene
		want  int32
	}{
		"nothing is due":          {at(3), 3},
		"one that joined already": {grown(1, 2).wanted(3).with(func(o *Observed) { o.StatefulSet.Replicas = 3 }), 2},
		"as many as before":       {grown(1, 3), 3},
		"none":                    {grown(1, 3).wanted(0), 0},
	} {
		if p := Next(&test.scene.o); p.ListSize != test.want {
			t.Errorf("%s: %d are listed, want %d", what, p.ListSize, test.want)
		}
	}
}

// Any client may have written a Job or the record of the rings.
func TestNoJobAndNoRecordMakesMoreMembers(t *testing.T) {
	forged := func(s *scene) *scene {
		return s.with(func(o *Observed) {
			o.Record = ring.Record{Serial: 5, Ring: o.Cluster.Ring.Of(512), From: o.Cluster.Ring.Of(3)}
		})
	}
	for what, test := range map[string]struct {
		scene *scene
		want  int32
	}{
		"a record":                             {forged(at(3)), 3},
		"a record, and members are to leave":   {forged(at(3).wanted(2)), 3},
		"a record, and members are to join":    {forged(at(3).wanted(4)), 3},
		"a record, and a member joined":        {forged(at(3).with(func(o *Observed) { o.StatefulSet.Replicas = 4 })), 4},
		"a record, and all members return":     {forged(at(3).wanted(2).with(func(o *Observed) { o.StatefulSet.Replicas, o.Pods = 0, nil })), 3},
		"a record, and a volume was set aside": {forged(at(3).aside(7)), 3},
		"a Job":                                {at(3).job(0, 512), 3},
		"a Job, and members return":            {at(3).wanted(2).with(func(o *Observed) { o.StatefulSet.Replicas, o.Pods = 0, nil }).job(0, 512), 3},
		"a Job of a set of many more":          {at(3).with(func(o *Observed) { o.StatefulSet.Replicas = 1 << 30 }).job(0, 1<<30), 512},
	} {
		p := Next(&test.scene.o)
		if p.Replicas != test.want || p.ListSize > test.want {
			t.Errorf("%s: %d members, %d are listed, want %d", what, p.Replicas, p.ListSize, test.want)
		}
		if err := MaySetReplicas(&test.scene.o, 512); err == nil && test.want < 512 {
			t.Errorf("%s: 512 members may be", what)
		}
	}
}

// The operator died after it had marked member 2 and before it wrote the list. Then items had to be
// moved among all three. No move waits for the drain of a member that still exists.
func TestAMemberThatHasTheMarkAndIsInTheRingHoldsNoMoveUp(t *testing.T) {
	got := planned(marked(grown(2, 3), 2).wanted(2).pod(2))
	if diff := cmp.Diff([]string{"1 Moving", "0 Moving"}, got.Moves); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
