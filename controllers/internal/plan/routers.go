package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Routers go through a ring change in states, which docs/router.md describes. Each state but the
// last two begins when every router has acknowledged the state before, so that no key is ever
// missed or old.
//
//	stable ─▶ prepare ─▶ settle ─▶ the clients' list changes ─▶ move ─▶ finish ─▶ stable
//
// The states prepare and settle pass while movers are prepared (prepare.go), and under the same
// conditions. If these conditions no longer hold, routers change with the list, like any other
// client. Only settle can't be undone, because routers store items at the new owners already. Move
// ends when the movers have found nothing more, and no leaving member ends before that.

// settles tells whether routers store items at the new owners already while clients are told of the
// old ring. Then the ring has to change. Any client may have written the table, so it only counts
// if all members that it leaves out have the leaving mark.
func (o *Observed) settles() bool {
	t := o.Table
	return o.Cluster.Routers && t != nil && t.State == contract.RingSettle && t.Old == o.Record.Ring &&
		t.New.Size > 0 && t.New == o.Cluster.Ring.Of(t.New.Size) && t.New.Size <= o.StatefulSet.Replicas &&
		!slices.ContainsFunc(o.Claims, func(c claim.Claim) bool {
			return !c.Aside && c.LeavingSince.IsZero() && c.Ordinal >= t.New.Size && c.Ordinal < t.Old.Size
		})
}

// routersChange tells whether routers still look for items at the old owners during the change to
// the clients' ring.
func (o *Observed) routersChange() bool {
	t := o.Table
	return o.Cluster.Routers && t != nil && t.New == o.Record.Ring &&
		(t.State == contract.RingMove || t.State == contract.RingFinish && !t.Ended(o.Now))
}

// decideTable decides what routers are told, and keeps the list unchanged while they are prepared
// for the next one. o.Record is the ring of the next list.
func (p *Plan) decideTable(o *Observed) {
	before := p.From
	p.Table = action.WriteTable{State: contract.RingStable, ListSize: p.ListSize}
	t := o.Table
	if !o.Cluster.Routers || t == nil || p.Replicas == 0 {
		return
	}
	delayList := func(state contract.RingState, size int32) {
		p.Prepares, p.ListSize, p.Record = true, o.ListSize, before
		p.Table = action.WriteTable{State: state, ListSize: size}
		p.wakeAt(t.Overdue())
	}
	next := o.Record.Ring
	moves := !o.Cluster.MovesOff && (o.Cluster.Patience > 0 || next.Size > before.Ring.Size)
	change := next != before.Ring && moves && o.mayPrepare(before)
	switch {
	case t.State == contract.RingStable && change && t.New == before.Ring:
		delayList(contract.RingPrepare, next.Size)
	case t.State == contract.RingPrepare && change && t.Old == before.Ring && t.New == next:
		if t.Ended(o.Now) {
			delayList(contract.RingSettle, next.Size)
			return
		}
		delayList(contract.RingPrepare, next.Size)
	case t.State == contract.RingSettle && t.New == next && t.Old == before.Ring:
		if p.Prepares || !t.Ended(o.Now) {
			delayList(contract.RingSettle, next.Size)
			return
		}
		p.Table = action.WriteTable{State: contract.RingMove, ListSize: next.Size}
	case t.State == contract.RingFinish && change && t.New == before.Ring:
		p.Prepares, p.ListSize, p.Record = true, o.ListSize, before
		p.Table.ListSize = o.ListSize
		p.endChange(o, t) // when it has ended, the next change is prepared
	case t.New != p.Record.Ring:
		if o.leasesMayBeThere() && t.State != contract.RingPrepare {
			p.endChange(o, t)
		}
	case t.State == contract.RingSettle:
		p.Table.State = contract.RingMove
	case t.State == contract.RingMove && !o.moversFoundNothing():
		p.Table.State = contract.RingMove
		p.wakeAfter(o.Now, o.moversOverdue())
	case t.State == contract.RingMove, t.State == contract.RingFinish:
		p.endChange(o, t)
	}
}

// endChange takes routers through the remaining states until the ring is stable. The state finish
// lasts until all leases have expired.
func (p *Plan) endChange(o *Observed, t *ring.Table) {
	p.Table.State = t.State
	expired := t.Since.Add(ring.LeasesExpire + time.Second)
	switch {
	case !t.Ended(o.Now):
		p.wakeAt(t.Overdue())
	case t.State == contract.RingSettle:
		p.Table.State = contract.RingMove
	case t.State == contract.RingMove:
		p.Table.State = contract.RingFinish
	case expired.After(o.Now):
		p.wakeAt(expired)
	case o.leasesMayBeThere() && o.moverTakesLeases():
		p.wakeAfter(o.Now, o.moversOverdue())
	default:
		p.Table.State = contract.RingStable
	}
}

// leasesMayBeThere tells whether routers and movers may take leases.
func (o *Observed) leasesMayBeThere() bool {
	return o.Cluster.Routers && o.Table != nil && o.Table.State != contract.RingStable && !o.Table.Shared
}

// waitsForLeases tells why items can't be moved or drained without leases yet, if only routers call
// the members; empty if no lease can exist. A drainer would take a lease for a newer value, and the
// item would be lost when the lease expires.
func (o *Observed) waitsForLeases() string {
	switch {
	case o.leasesMayBeThere():
		return "routers change rings" // the routers' answers bring the next state
	case o.leasesExpire().After(o.Now):
		return "routers have changed rings, and leases of the last seconds may be there"
	}
	return ""
}

// leasesExpire is when all leases have expired that were taken before the ring became stable; zero
// for a change that has not ended.
func (o *Observed) leasesExpire() time.Time {
	if !o.Cluster.Routers || !o.Cluster.Exclusive || o.Table == nil || o.Table.State != contract.RingStable {
		return time.Time{}
	}
	return o.Table.Since.Add(ring.LeasesExpire + time.Second)
}

// leasesWait is waitsForLeases for a mover, which takes leases itself if routers know them.
func (p *Plan) leasesWait(o *Observed) string {
	if p.leases(o) {
		return ""
	}
	p.wakeAfter(o.Now, o.leasesExpire())
	return o.waitsForLeases()
}

// moverTakesLeases tells whether a mover that was told to begin still runs. A mover whose node is
// gone seems to run forever, so none counts after moversOverdue.
func (o *Observed) moverTakesLeases() bool {
	return slices.ContainsFunc(o.Drainers, Drainer.moves) && o.moversOverdue().After(o.Now)
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

// routersAsk tells whether routers still look for items at this leaving member, or will do so after
// this plan.
func (p *Plan) routersAsk(o *Observed, c *claim.Claim) bool {
	return (o.routersChange() || p.Table.State == contract.RingMove) && o.isLeaving(c) && !c.Deleting && !o.overdue(c) && slices.Contains(o.Ready, c.Ordinal)
}

// leases tells whether keys are moved under their leases. Routers know leases only in the state
// move.
func (p *Plan) leases(o *Observed) bool {
	return p.Table.State == contract.RingMove && o.leasesMayBeThere() && o.Table.New == o.Record.Ring
}

// routersAskOldOwners tells whether routers look for items at leaving members, too. Then these
// items have to be moved, even if another size is wanted now.
func (o *Observed) routersAskOldOwners() bool {
	return o.routersChange() && o.Table.State == contract.RingMove
}

// moversFoundNothing tells whether no items are left at the old owners: those of staying members
// are moved, and so are those of leaving members.
func (o *Observed) moversFoundNothing() bool {
	return !slices.ContainsFunc(o.Claims, func(c claim.Claim) bool { return o.misplaced(&c) || o.isLeaving(&c) && o.mayHaveItems(&c) })
}

// mayHaveItems tells whether a leaving member may have items that a mover will find. It has none if
// its mover only waits for clients or has ended for good, or if no mover can be at work.
func (o *Observed) mayHaveItems(c *claim.Claim) bool {
	if !o.mayMoveLive(c) || !slices.Contains(o.Ready, c.Ordinal) || o.overdue(c) || o.moverSettles(c.UID) {
		return false
	}
	job := o.moveOf(c)
	return job == nil || job.Deleting || job.State == JobActive || job.Target != o.target()
}

// moverSettles tells whether the mover of the claim's leaving member has found nothing more.
func (o *Observed) moverSettles(claim types.UID) bool {
	return slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.ClaimUID == claim && d.Settles })
}

// route keeps the routers as the spec wants them, and tells them of the rings.
func (p *Plan) route(o *Observed) {
	if !o.Cluster.Routers {
		return
	}
	p.add(p.Table)
	for _, pod := range o.RouterPods {
		p.add(action.TellRouter{Pod: pod})
	}
	p.add(action.ApplyRouters{Part: action.RouterService}, action.ApplyRouters{Part: action.RouterPolicy}, action.ApplyRouters{Part: action.RouterDeployment}, action.ApplyRouters{Part: action.RouterBudget})
}
