package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// A scale-down is announced first: the marks are written, movers are prepared (prepare.go), and the
// clients' list names only the members that stay. The leaving members keep running meanwhile. A
// mover (drainer move) gives their items to the owners while clients still find them. It ends when
// no client calls a leaving member any more, or when routing.patience is over. Only then does the
// StatefulSet shrink, and the volumes are drained as usual. The drain adds what is left on them,
// which usually is nothing.
//
//	marked ──movers run──▶ announced ──they begin──▶ moved ──they have ended──▶ departed ──▶ drained (plan.go)
//	   │                       │                       │
//	   └───────────────────────┴───────────────────────┴── anything goes wrong: departed at once
//
// The move is tried once for each leaving member, and its Job is the only record of it. A failure
// costs hits and no items, because the drain follows in any case. Leaving members leave together,
// when the last one has been moved.

// moverStartsWithin bounds how long a leaving member runs on without a mover at work.
const moverStartsWithin = time.Minute

// mostMovers is how many members' items are moved at once, leaving and staying members together.
// spec.drain.parallelism does not count here: a mover takes less than a second for most caches, or
// waits for clients.
const mostMovers = 8

// staying is how many members the StatefulSet has, without those that have the leaving mark and are
// off the clients' list.
func (o *Observed) staying() int32 {
	departed := o.lowestMarked()
	if departed == nil {
		return o.StatefulSet.Replicas
	}
	return min(o.StatefulSet.Replicas, max(departed.Ordinal, o.Record.Ring.Size))
}

// isLeaving tells whether the claim's member has the leaving mark, is off the clients' list, and
// still exists.
func (o *Observed) isLeaving(c *claim.Claim) bool {
	return !c.LeavingSince.IsZero() && !c.Aside && o.Record.Ring.Size <= c.Ordinal && c.Ordinal < o.StatefulSet.Replicas
}

// mayMoveLive tells whether the items of a leaving member may be given to their owners while the
// member runs. They may not if a person holds or skips its drain, if the member is wanted again and
// no router looks for items there, or if its items are older than those that are moved first. The
// plan asks this, and MayMove asks it about live state.
func (o *Observed) mayMoveLive(c *claim.Claim) bool {
	older := o.drainedAfterMove(c) && slices.ContainsFunc(o.Claims, func(c claim.Claim) bool { return o.misplaced(&c) })
	wanted := o.Cluster.Size > c.Ordinal && !o.routersAskOldOwners()
	return o.isLeaving(c) && 0 < o.Cluster.Size && !wanted && o.toDrain(c) && o.Cluster.Patience > 0 &&
		!o.Cluster.MovesOff && !c.Deleting && !c.KeptByAPerson() && c.Receipt == nil && !older
}

// waitsForMover tells whether the cluster waits for the mover of this leaving member, because the
// mover may start soon or is at work.
func (o *Observed) waitsForMover(c *claim.Claim) bool {
	if !o.mayMoveLive(c) || !slices.Contains(o.Ready, c.Ordinal) || o.overdue(c) {
		return false
	}
	soon := o.toldJustNow(c) || o.routersAskOldOwners()
	switch job := o.moveOf(c); {
	case job == nil:
		return soon
	case job.Deleting || job.State != JobActive || job.Target != o.target():
		return false
	}
	return soon || o.moverRuns(c)
}

// toldJustNow tells whether the member was told to leave less than moverStartsWithin ago. Any
// client may have written the mark, so a time in the future does not count as recent.
func (o *Observed) toldJustNow(c *claim.Claim) bool {
	age := o.Now.Sub(c.LeavingSince)
	return c.MarkPending() || -moverStartsWithin < age && age < moverStartsWithin
}

// stopsWaiting is when the member leaves at the latest. A mover that ends by itself has ended by
// then; a mover whose node is gone would seem to run forever.
func (o *Observed) stopsWaiting(c *claim.Claim) time.Time {
	return c.LeavingSince.Add(2*moverStartsWithin + o.Cluster.MoveDeadline)
}

// overdue tells whether the member should have left by now.
func (o *Observed) overdue(c *claim.Claim) bool {
	_, told := c.LeavingAt()
	return told && !o.stopsWaiting(c).After(o.Now)
}

// keepLeaving decides how many members run: those that stay, and all leaving members as long as the
// cluster waits for one of them.
func (p *Plan) keepLeaving(o *Observed) {
	p.Running = p.Replicas
	if p.Prepares {
		p.Running = max(p.Running, o.StatefulSet.Replicas)
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if p.Replicas == 0 || c.Ordinal < p.Replicas || !o.waitsForMover(c) && !p.routersAsk(o, c) {
			continue
		}
		p.Running = o.StatefulSet.Replicas
		at, told := c.LeavingAt()
		switch { // there is no event if no mover starts, or if its node is gone
		case told && at.Add(moverStartsWithin).After(o.Now):
			p.wakeAt(at.Add(moverStartsWithin))
		case told:
			p.wakeAt(o.stopsWaiting(c))
		}
	}
}

// runsOn tells whether the claim's member keeps running for now.
func (p *Plan) runsOn(c *claim.Claim) bool {
	return !c.Aside && !c.Deleting && p.Replicas <= c.Ordinal && c.Ordinal < p.Running
}

// leaving returns the state of a leaving member that still runs.
func (p *Plan) leaving(o *Observed, c *claim.Claim, s DrainState) DrainState {
	switch job := o.moveOf(c); {
	case o.waitsForMover(c):
		return s.is(Leaving, "", "")
	case job != nil && job.State == JobComplete:
		return s.is(Leaving, InTurn, "its items have been moved: it leaves together with the other leaving members")
	}
	return s.is(Leaving, InTurn, "its items are drained when it is gone: it leaves together with the other leaving members")
}

// keepsMover tells whether the Job of a leaving member's mover is kept: while it is at work, and
// afterwards as the record that the move is over, until the member is gone.
func (o *Observed) keepsMover(c *claim.Claim, j *Job) bool {
	return o.isLeaving(c) && (o.waitsForMover(c) || !j.mayRun())
}

// moveLeaving starts the movers of leaving members.
func (p *Plan) moveLeaving(o *Observed, slots *int) {
	if p.allMovesWait(o) != "" || len(o.lost()) > 0 {
		return
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if !p.runsOn(c) || !o.waitsForMover(c) || o.beingMoved(c) || *slots <= 0 {
			continue
		}
		*slots--
		p.add(action.CreateMove{Claim: c.Ref(), Target: o.target(), Members: o.Record.Ring.Size, Prepared: p.Prepares, Leases: p.leases(o)})
	}
}

// movesLeaving tells whether the Job moves the items of a leaving member, not of a member that
// stays.
func (o *Observed) movesLeaving(j *Job) bool {
	c := o.claim(j.ClaimUID)
	return c != nil && !c.LeavingSince.IsZero()
}

// moved returns the receipt of a leaving member's mover that succeeded, or nil and why there is
// none.
func (o *Observed) moved(c *claim.Claim, j *Job) (receipt *contract.Receipt, why string) {
	switch {
	case j.State == JobActive:
		return nil, "the mover had not ended"
	case j.State == JobFailed:
		return nil, j.Message
	case j.ReceiptErr != nil:
		return nil, j.ReceiptErr.Error()
	}
	if err := j.Receipt.AddsUp(ring.Source(c.UID, j.Target)); err != nil {
		return nil, err.Error()
	}
	return j.Receipt, ""
}
