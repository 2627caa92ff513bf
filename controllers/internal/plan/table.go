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
// next one. v has the record of the next list.
func (told Told) tellRouters(v *view, replicas int32) (Told, claims.Work) {
	var w claims.Work
	told.Table = action.WriteTable{State: contract.RingStable, ListSize: told.ListSize, Out: told.Record.Ring.Out}
	t, before, next := v.Table, told.From, v.Record.Ring
	if !v.Cluster.Routers || t == nil || replicas == 0 {
		return told, w
	}
	delayList := func(state contract.RingState) (Told, claims.Work) {
		held := told.heldBack(v.ListSize)
		held.Table = action.WriteTable{State: state, ListSize: next.Size, Out: next.Out}
		w.WakeAt(t.Overdue())
		return held, w
	}
	moves := !v.Cluster.MovesOff && (v.Cluster.Patience > 0 || v.Cluster.InPods || next.Size > before.Ring.Size || next.Out != before.Ring.Out)
	// foundNothing: no items are left at the old owners: those of staying members are moved, and so
	// are those of leaving members.
	foundNothing := !slices.ContainsFunc(v.members, func(m member) bool { return m.misplaced || m.hasItems })
	change := next != before.Ring && moves && mayPrepare(v, before)
	switch {
	case t.State == contract.RingStable && change && t.New == before.Ring:
		return delayList(contract.RingPrepare)
	case t.State == contract.RingPrepare && change && t.Old == before.Ring && t.New == next:
		if t.Ended(v.Now) {
			return delayList(contract.RingSettle)
		}
		return delayList(contract.RingPrepare)
	case t.State == contract.RingSettle && t.New == next && t.Old == before.Ring:
		if told.Prepares || !t.Ended(v.Now) {
			return delayList(contract.RingSettle)
		}
		told.Table = action.WriteTable{State: contract.RingMove, ListSize: next.Size, Out: next.Out}
	case t.State == contract.RingFinish && change && t.New == before.Ring:
		told = told.heldBack(v.ListSize)
		told.Table.ListSize, told.Table.Out = v.ListSize, before.Ring.Out
		told.Table.State, w = endChange(v) // when it has ended, the next change is prepared
	case t.New != told.Record.Ring:
		if v.leases && t.State != contract.RingPrepare {
			told.Table.State, w = endChange(v)
		}
	case t.State == contract.RingSettle:
		told.Table.State = contract.RingMove
	case t.State == contract.RingMove && !foundNothing:
		told.Table.State = contract.RingMove
		w.WakeAfter(v.Now, moversOverdue(v))
	case t.State == contract.RingMove, t.State == contract.RingFinish:
		told.Table.State, w = endChange(v)
	}
	return told, w
}

// endChange takes routers through the remaining states until the ring is stable. The state finish
// lasts until all leases have expired.
func endChange(v *view) (state contract.RingState, w claims.Work) {
	t := v.Table
	expired := t.Since.Add(ring.LeasesExpire + time.Second)
	switch {
	case !t.Ended(v.Now):
		w.WakeAt(t.Overdue())
	case t.State == contract.RingSettle:
		return contract.RingMove, w
	case t.State == contract.RingMove:
		return contract.RingFinish, w
	case expired.After(v.Now):
		w.WakeAt(expired)
	// A mover whose node is gone seems to run forever.
	case v.leases && v.begun && moversOverdue(v).After(v.Now):
		w.WakeAfter(v.Now, moversOverdue(v))
	default:
		return contract.RingStable, w
	}
	return t.State, w
}

// moversOverdue is when every mover that ends by itself must have ended: the movers that began in
// the state that routers were told of last, and those of leaving members.
func moversOverdue(v *view) time.Time {
	end := v.Table.Since.Add(moverStartsWithin + v.Cluster.MoveDeadline)
	for i := range v.members {
		if m := &v.members[i]; m.isLeaving && !m.overdue && m.by.After(end) {
			end = m.by
		}
	}
	return end
}

// leases tells whether keys are moved under their leases. Routers know leases only in the state
// move.
func (told *Told) leases(v *view) bool {
	return told.Table.State == contract.RingMove && v.leases && v.Table.New == v.Record.Ring
}
