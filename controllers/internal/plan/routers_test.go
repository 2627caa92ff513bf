package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// table tells routers of a change between rings of these sizes; from is 0 in stable.
func (s *scene) table(state contract.RingState, from, to int32, changes ...func(*ring.Table)) *scene {
	t := &ring.Table{State: state, New: s.o.Cluster.Ring.Of(to), Since: s.o.Now.Add(-time.Second), Acknowledged: true, Shared: true}
	if from > 0 {
		t.Old = s.o.Cluster.Ring.Of(from)
	}
	for _, change := range changes {
		change(t)
	}
	s.o.Cluster.Routers, s.o.Table = true, t
	return s
}

// alone: only routers call members, and may hold leases.
func alone(t *ring.Table) { t.Shared = false }

func behind(t *ring.Table) { t.Acknowledged = false }

// renamed: clients call the members by other names.
func renamed(o *Observed) { o.Cluster.Ring.ServerName = "member-{ordinal}" }

func since(d time.Duration) func(*ring.Table) {
	return func(t *ring.Table) { t.Since = t.Since.Add(time.Second - d) }
}

// changed is preparing after clients have been told of two members.
func changed() *scene {
	return preparing().prepares(func(j *claims.Job) { j.Waits = false }).with(func(o *Observed) {
		target := o.Moves[0].Target
		o.ListSize, o.Record = 2, o.Record.Next(o.Cluster.Ring.Of(2))
		o.Drainers = []claims.Drainer{{Pod: "mover", ClaimUID: uid(2), Target: target, Running: true}}
	})
}

// longAgo: the member was told to leave more than a minute ago.
func longAgo(c *claims.Claim) { marks(now.Add(-90 * time.Second))(c) }

func settled(o *Observed) { o.Drainers[0].Settles = true }

// TestRoutersGoThroughTheStatesOfARingChange checks what routers are told, how many members clients
// are told of, and how many run.
func TestRoutersGoThroughTheStatesOfARingChange(t *testing.T) {
	const stable, prepare, settle, move, finish = contract.RingStable, contract.RingPrepare, contract.RingSettle, contract.RingMove, contract.RingFinish
	ready := func() *scene { return preparing().prepares().starts(true) }
	overdue := since(contract.RingWaits + ring.ClocksDiffer)
	for what, test := range map[string]struct {
		scene         *scene
		state         contract.RingState
		list, running int32
	}{
		"a member is to leave":                {preparing().table(stable, 0, 3), prepare, 3, 3},
		"not all have acknowledged":           {ready().table(prepare, 3, 2, behind), prepare, 3, 3},
		"one does not for too long":           {ready().table(prepare, 3, 2, behind, overdue), settle, 3, 3},
		"all look at both":                    {ready().table(prepare, 3, 2), settle, 3, 3},
		"not all store at the new owners":     {ready().table(settle, 3, 2, behind), settle, 3, 3},
		"one does not store there for long":   {ready().table(settle, 3, 2, behind, overdue), move, 2, 3},
		"the movers are not ready":            {preparing().prepares().table(settle, 3, 2), settle, 3, 3},
		"all store at the new owners":         {ready().table(settle, 3, 2), move, 2, 3},
		"the operator died after the list":    {changed().table(settle, 3, 2), move, 2, 3},
		"items move":                          {changed().table(move, 3, 2), move, 2, 3},
		"nothing is left, not acknowledged":   {changed().with(settled).table(move, 3, 2, behind), move, 2, 3},
		"nothing is left":                     {changed().with(settled).table(move, 3, 2), finish, 2, 3},
		"the mover has ended, routers ask":    {changed().with(func(o *Observed) { o.Drainers = nil }).prepared(claims.JobComplete).table(move, 3, 2), finish, 2, 3},
		"no router is to ask the old owners":  {changed().with(settled).table(finish, 3, 2, behind), finish, 2, 3},
		"leases may be there":                 {changed().with(func(o *Observed) { o.Drainers = nil }).prepared(claims.JobComplete).table(finish, 3, 2), finish, 2, 2},
		"leases have expired":                 {changed().with(settled).table(finish, 3, 2, since(2*ring.LeasesExpire)), stable, 2, 3},
		"the ring is stable":                  {changed().with(settled).table(stable, 0, 2), stable, 2, 3},
		"a person wants it again in prepare":  {ready().wanted(3).table(prepare, 3, 2), settle, 3, 3},
		"a person wants it again in settle":   {ready().wanted(3).table(settle, 3, 2), move, 2, 3},
		"a person wants it again in move":     {changed().wanted(3).table(move, 3, 2), move, 2, 3},
		"and nothing is left":                 {changed().wanted(3).with(settled).table(move, 3, 2), finish, 2, 3},
		"the mover's pod starts again":        {changed().with(func(o *Observed) { o.Drainers = nil }).change(2, longAgo).table(move, 3, 2), move, 2, 3},
		"the mover's Job is gone":             {changed().with(func(o *Observed) { o.Drainers, o.Moves = nil, nil }).change(2, longAgo).table(move, 3, 2), move, 2, 3},
		"the mover has failed":                {changed().with(func(o *Observed) { o.Drainers = nil }).prepared(claims.JobFailed).table(move, 3, 2), finish, 2, 3},
		"no mover for more than an hour":      {changed().with(func(o *Observed) { o.Drainers = nil }).change(2, marks(now.Add(-2*time.Hour))).table(move, 3, 2), finish, 2, 2},
		"a person holds it in move":           {changed().change(2, requested(claims.Hold)).table(move, 3, 2), finish, 2, 3},
		"a mover may hold leases":             {changed().with(settled).table(finish, 3, 2, alone, since(2*ring.LeasesExpire)), finish, 2, 3},
		"no mover holds leases":               {changed().with(func(o *Observed) { o.Drainers = nil }).prepared(claims.JobComplete).table(finish, 3, 2, alone, since(2*ring.LeasesExpire)), stable, 2, 2},
		"another library, leases in settle":   {ready().table(settle, 3, 2, alone).with(func(o *Observed) { o.Cluster.Ring.Client = "gomemcache" }), move, 2, 3},
		"another library, leases in move":     {changed().table(move, 3, 2, alone).with(func(o *Observed) { o.Cluster.Ring.Client = "gomemcache" }), finish, 2, 2},
		"a person wants it again in finish":   {changed().wanted(3).table(finish, 3, 2), finish, 2, 2},
		"another client library":              {ready().table(settle, 3, 2).with(func(o *Observed) { o.Cluster.Ring.Client = "gomemcache" }), stable, 2, 2},
		"other names":                         {ready().table(settle, 3, 2).with(renamed), stable, 2, 2},
		"other names in move":                 {changed().table(move, 3, 2).with(renamed), stable, 2, 2},
		"other names, leases in settle":       {ready().table(settle, 3, 2, alone).with(renamed), move, 2, 3},
		"other names, leases in move":         {changed().table(move, 3, 2, alone).with(renamed), finish, 2, 2},
		"another ring, leases in finish":      {ready().table(finish, 2, 3), finish, 3, 3},
		"and all leases have expired":         {ready().table(finish, 2, 3, since(2*ring.LeasesExpire)), stable, 3, 3},
		"another client leaves members out":   {at(3).with(patient).table(settle, 3, 1), stable, 3, 3},
		"items are not moved":                 {preparing().with(func(o *Observed) { o.Cluster.MovesOff = true }).table(stable, 0, 3), stable, 2, 2},
		"no client is waited for":             {preparing().with(func(o *Observed) { o.Cluster.Patience = 0 }).table(stable, 0, 3), stable, 2, 2},
		"the table is lost":                   {preparing().with(func(o *Observed) { o.Cluster.Routers = true }), stable, 3, 3},
		"all stop":                            {ready().wanted(0).table(settle, 3, 2), stable, 0, 0},
		"a member joins":                      {joining().with(patient).table(stable, 0, 2), prepare, 2, 3},
		"it joins, all look at both":          {joining().with(patient).table(prepare, 2, 3), settle, 2, 3},
		"it joins, a person wants it no more": {joining().with(patient).wanted(2).table(settle, 2, 3, behind), settle, 2, 3},
	} {
		t.Run(what, func(t *testing.T) {
			p := Next(&test.scene.o)
			told := actions[action.WriteTable](p)
			if len(told) != 1 || told[0].State != test.state || p.ListSize != test.list || p.Running != test.running {
				t.Errorf("told %v, %d listed, %d run; want %s, %d, %d", told, p.ListSize, p.Running, test.state, test.list, test.running)
			}
		})
	}
}

func patient(o *Observed) { o.Cluster.Patience = 90 * time.Second }

// prepared sets the state of the mover's Job.
func (s *scene) prepared(state claims.JobState) *scene {
	s.o.Moves[0].State, s.o.Moves[0].Receipt = state, receiptFor(uid(2))
	return s
}

// TestTheRingStaysWhileRoutersLookAtTheOldOwners: the next scaling waits.
func TestTheRingStaysWhileRoutersLookAtTheOldOwners(t *testing.T) {
	for state, waits := range map[contract.RingState]bool{contract.RingStable: false, contract.RingMove: true, contract.RingFinish: true} {
		s := at(2).wanted(3).with(func(o *Observed) {
			o.Now, o.Ready = now, []int32{0, 1}
			o.ListSize = 2
		})
		from := int32(0)
		if state != contract.RingStable {
			from = 3
		}
		s.table(state, from, 2, behind)
		p := Next(&s.o)
		if waited := p.SizeBlocked == BlockedByMove; waited != waits {
			t.Errorf("%s: %s", state, fmt.Sprint(p.SizeBlocked, p.Replicas))
		}
	}
}

// TestTheListChangesWhileAClaimOfTheEarlierRingIsNew: a member that lost its claim returns when routers store items at the
// new owners already. The change of the ring goes on, and moves its items, too.
func TestTheListChangesWhileAClaimOfTheEarlierRingIsNew(t *testing.T) {
	s := preparing().with(func(o *Observed) {
		o.Record.Serial, o.Record.From = 1, o.Record.Ring
		for i := range o.Claims[1:] {
			o.Claims[1+i].Moved = 1
		}
	})
	s.table(contract.RingSettle, 3, 2).prepares().starts(true)
	if due := look(&s.o).misplaced; !due {
		t.Fatal("no item is to be moved by the ring of three")
	}
	s.o.Now = now.Add(preparesWithin) // its mover is not prepared
	if a, err := takeAll(&s.o, map[string]int{}); err != nil {
		t.Errorf("%s is refused: %v", a, err)
	}
	if got, want := s.o.Record.Ring.Size, int32(2); got != want {
		t.Errorf("clients are told of %d members, want %d", got, want)
	}
}

// TestAnOlderVolumeWaitsForItemsOfAnEarlierRingWhileRoutersSettle: only the list goes on. The survivors' items are newer,
// and a drain of a stale plan would put an older value where clients look.
func TestAnOlderVolumeWaitsForItemsOfAnEarlierRingWhileRoutersSettle(t *testing.T) {
	for moved, waits := range map[int64]bool{0: true, 1: false} {
		s := preparing().left(3).change(2, requested(claims.Hold)).with(func(o *Observed) {
			o.Record.Serial, o.Record.From = 1, o.Record.Ring
			for i := range o.Claims {
				o.Claims[i].Moved = moved
			}
		}).table(contract.RingSettle, 3, 2)
		err := MayDrain(&s.o, action.CreateDrain{Claim: s.o.Claim(uid(3)).Ref(), Survivors: action.Range{Count: 3}})
		if (err != nil) != waits || waits && !strings.Contains(err.Error(), "moved first") {
			t.Errorf("items moved by ring %d: %v", moved, err)
		}
	}
}

// exclusive sets whether only routers call members, in the spec and in the table.
func (s *scene) exclusive(is bool) *scene {
	s.o.Cluster.Exclusive, s.o.Table.Shared = is, !is
	return s
}

// TestMoversTakeLeasesIfOnlyRoutersAsk, and only while routers know leases.
func TestMoversTakeLeasesIfOnlyRoutersAsk(t *testing.T) {
	for _, exclusive := range []bool{true, false} {
		s := preparing().prepares().starts(true).table(contract.RingSettle, 3, 2).exclusive(exclusive)
		if begin := actions[action.BeginMove](Next(&s.o)); len(begin) != 1 || begin[0].Leases != exclusive {
			t.Errorf("exclusive=%t: %v", exclusive, begin)
		}
		s = changed().with(func(o *Observed) { o.Moves, o.Drainers = nil, nil }).table(contract.RingMove, 3, 2).exclusive(exclusive)
		if place := actions[action.CreateMove](Next(&s.o)); len(place) != 1 || place[0].Leases != exclusive {
			t.Errorf("exclusive=%t: %+v", exclusive, place)
		}
	}
}

// TestNothingIsMovedWithoutLeasesWhileOthersHaveThem: neither by a mover nor by a drain, which
// would take a lease for a client's value. Movers and drains continue when all leases have expired.
func TestNothingIsMovedWithoutLeasesWhileOthersHaveThem(t *testing.T) {
	gone := func() *scene { return at(2).left(2).with(func(o *Observed) { o.Now = now }) }
	long := since(2 * (ring.LeasesExpire + time.Second))
	for what, test := range map[string]struct {
		scene *scene
		waits bool
	}{
		"routers move":                            {gone().table(contract.RingMove, 3, 2).exclusive(true), true},
		"routers finish":                          {gone().table(contract.RingFinish, 3, 2, long).exclusive(true), true},
		"the ring is stable":                      {gone().table(contract.RingStable, 0, 2, long).exclusive(true), false},
		"the ring has become stable just now":     {gone().table(contract.RingStable, 0, 2).exclusive(true), true},
		"other clients ask members, routers move": {gone().table(contract.RingMove, 3, 2).exclusive(false), false},
	} {
		t.Run(what, func(t *testing.T) {
			o := &test.scene.o
			v := look(o)
			_, why := drainWaits(v, &v.members[len(v.members)-1], 2)
			if waits := strings.Contains(why, "lease"); waits != test.waits {
				t.Errorf("the drain waits: %q", why)
			}
		})
	}
	for what, test := range map[string]struct {
		scene  *scene
		begins bool
	}{
		"an abandoned change, routers know":       {preparing().prepares().starts(true).with(notReady).table(contract.RingPrepare, 3, 2).exclusive(true), false},
		"an abandoned change, of a moment ago":    {changed().table(contract.RingStable, 0, 2).exclusive(true).with(waiting), false},
		"an abandoned change, leases are expired": {changed().table(contract.RingStable, 0, 2, long).exclusive(true).with(waiting), true},
		"an abandoned change, without leases":     {preparing().prepares().starts(true).with(notReady).table(contract.RingPrepare, 3, 2).exclusive(false), true},
	} {
		t.Run(what, func(t *testing.T) {
			begin := actions[action.BeginMove](Next(&test.scene.o))
			if (len(begin) == 1 && !begin[0].Leases) != test.begins {
				t.Errorf("told to begin: %v", begin)
			}
			for _, b := range begin {
				if err := MayBegin(&test.scene.o, b); err != nil {
					t.Log(err) // the list is not written yet
				}
			}
		})
	}
}

// notReady: a survivor isn't ready, so the change of the ring is given up.
func notReady(o *Observed) { o.Ready = []int32{0, 2} }

// waiting: the mover was not told to begin yet.
func waiting(o *Observed) {
	o.Moves[0].Waits, o.Drainers[0].Waits, o.Drainers[0].Prepared = true, true, true
}

// TestADrainThatWaitsForRoutersHoldsNoMoveUp, because drain and move would wait for each other
// forever: routers wait for the move.
func TestADrainThatWaitsForRoutersHoldsNoMoveUp(t *testing.T) {
	for _, exclusive := range []bool{true, false} {
		s := at(3).left(3).with(func(o *Observed) {
			o.Now, o.Ready, o.ListSize = now, []int32{0, 1, 2}, 3
			o.Cluster.Ring.Client = "gomemcache"
			o.Record = ring.Record{Ring: o.Cluster.Ring.Of(4)}.Next(o.Cluster.Ring.Of(3))
		}).table(contract.RingMove, 4, 3).exclusive(exclusive)
		p := Next(&s.o)
		if moved := len(actions[action.CreateMove](p)) > 0; moved != exclusive {
			t.Errorf("exclusive=%t: %v, moves %+v", exclusive, p.Drains, p.Moves)
		}
	}
}

// TestMoversGoOnWhileRoutersAskTheOldOwners: a mover whose pod starts again is kept, and a mover
// that is gone is started again, even a minute after the member was told to leave.
func TestMoversGoOnWhileRoutersAskTheOldOwners(t *testing.T) {
	noPod := func(o *Observed) { o.Drainers = nil }
	s := changed().with(noPod).change(2, longAgo).table(contract.RingMove, 3, 2)
	if ended := actions[action.DeleteJob](Next(&s.o)); len(ended) > 0 {
		t.Errorf("its mover is ended: %v", ended)
	}
	s = changed().with(noPod).change(2, longAgo).with(func(o *Observed) { o.Moves = nil }).table(contract.RingMove, 3, 2)
	if begun := actions[action.CreateMove](Next(&s.o)); len(begun) != 1 {
		t.Errorf("movers that are started: %v", begun)
	}
}

// TestAMoverThatSettlesTakesNoTurn, because it only waits for clients, and other movers have items
// to move.
func TestAMoverThatSettlesTakesNoTurn(t *testing.T) {
	s := changed()
	before := moverSlots(&s.o)
	if s.with(settled); moverSlots(&s.o) != before+1 {
		t.Errorf("%d turns are left, and %d when one settles", before, moverSlots(&s.o))
	}
}
