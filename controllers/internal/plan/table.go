package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Routers go through a ring change in states, which docs/router.md describes. Each state but the
// last two begins when every router has acknowledged the state before, so that no key is ever
// missed or old.
//
//	stable ─▶ prepare ─▶ settle ─▶ the clients' list changes ─▶ move ─▶ finish ─▶ stable
//
// The states prepare and settle pass while movers are prepared (told.go), and under the same
// conditions. If these conditions no longer hold, routers change with the list, like any other
// client. Only settle can't be undone, because routers store items at the new owners already. Move
// ends when the movers have found nothing more, and no leaving member ends before that.

// tellRouters decides what routers are told, and holds the list back while they are prepared for the
// next one. o has the record of the next list.
func (told Told) tellRouters(o *Observed, replicas int32) (Told, claims.Work) {
	var w claims.Work
	told.Table = action.WriteTable{State: contract.RingStable, ListSize: told.ListSize}
	t, before, next := o.Table, told.From, o.Record.Ring
	if !o.Cluster.Routers || t == nil || replicas == 0 {
		return told, w
	}
	delayList := func(state string) (Told, claims.Work) {
		held := told.heldBack(o)
		held.Table = action.WriteTable{State: state, ListSize: next.Size}
		w.WakeAt(t.Overdue())
		return held, w
	}
	moves := !o.Cluster.MovesOff && (o.Cluster.Patience > 0 || next.Size > before.Ring.Size)
	change := next != before.Ring && moves && o.mayPrepare(before)
	switch {
	case t.State == contract.RingStable && change && t.New == before.Ring:
		return delayList(contract.RingPrepare)
	case t.State == contract.RingPrepare && change && t.Old == before.Ring && t.New == next:
		if t.Ended(o.Now) {
			return delayList(contract.RingSettle)
		}
		return delayList(contract.RingPrepare)
	case t.State == contract.RingSettle && t.New == next && t.Old == before.Ring:
		if told.Prepares || !t.Ended(o.Now) {
			return delayList(contract.RingSettle)
		}
		told.Table = action.WriteTable{State: contract.RingMove, ListSize: next.Size}
	case t.State == contract.RingFinish && change && t.New == before.Ring:
		told = told.heldBack(o)
		told.Table.ListSize = o.ListSize
		told.Table.State, w = endChange(o, t) // when it has ended, the next change is prepared
	case t.New != told.Record.Ring:
		if o.leasesMayBeThere() && t.State != contract.RingPrepare {
			told.Table.State, w = endChange(o, t)
		}
	case t.State == contract.RingSettle:
		told.Table.State = contract.RingMove
	case t.State == contract.RingMove && !o.moversFoundNothing():
		told.Table.State = contract.RingMove
		w.WakeAfter(o.Now, o.moversOverdue())
	case t.State == contract.RingMove, t.State == contract.RingFinish:
		told.Table.State, w = endChange(o, t)
	}
	return told, w
}

// endChange takes routers through the remaining states until the ring is stable. The state finish
// lasts until all leases have expired.
func endChange(o *Observed, t *ring.Table) (state string, w claims.Work) {
	expired := t.Since.Add(ring.LeasesExpire + time.Second)
	switch {
	case !t.Ended(o.Now):
		w.WakeAt(t.Overdue())
	case t.State == contract.RingSettle:
		return contract.RingMove, w
	case t.State == contract.RingMove:
		return contract.RingFinish, w
	case expired.After(o.Now):
		w.WakeAt(expired)
	case o.leasesMayBeThere() && o.moverTakesLeases():
		w.WakeAfter(o.Now, o.moversOverdue())
	default:
		return contract.RingStable, w
	}
	return t.State, w
}

// moverTakesLeases tells whether a mover that was told to begin still runs. A mover whose node is
// gone seems to run forever, so none counts after moversOverdue.
func (o *Observed) moverTakesLeases() bool {
	return slices.ContainsFunc(o.Drainers, moves) && o.moversOverdue().After(o.Now)
}

// moversOverdue is when every mover that ends by itself must have ended: the movers that began in
// the state that routers were told of last, and those of leaving members.
func (o *Observed) moversOverdue() time.Time {
	end := o.Table.Since.Add(moverStartsWithin + o.Cluster.MoveDeadline)
	for i := range o.Claims {
		if c := &o.Claims[i]; o.isLeaving(c) {
			if at := o.stopsWaiting(c); at.After(end) && !o.overdue(c) {
				end = at
			}
		}
	}
	return end
}

// moversFoundNothing tells whether no items are left at the old owners: those of staying members
// are moved, and so are those of leaving members.
func (o *Observed) moversFoundNothing() bool {
	return !slices.ContainsFunc(o.Claims, func(c claims.Claim) bool { return o.misplaced(&c) || o.isLeaving(&c) && o.mayHaveItems(&c) })
}

// mayHaveItems tells whether a leaving member may have items that a mover will find. It has none if
// its mover only waits for clients or has ended for good, or if no mover can be at work.
func (o *Observed) mayHaveItems(c *claims.Claim) bool {
	if !o.mayMoveLive(c) || !slices.Contains(o.Ready, c.Ordinal) || o.overdue(c) || o.moverSettles(c.UID) {
		return false
	}
	job := o.moveOf(c)
	return job == nil || job.Deleting || job.State == claims.JobActive || job.Target != o.target()
}

// leases tells whether keys are moved under their leases. Routers know leases only in the state
// move.
func (told *Told) leases(o *Observed) bool {
	return told.Table.State == contract.RingMove && o.leasesMayBeThere() && o.Table.New == o.Record.Ring
}
