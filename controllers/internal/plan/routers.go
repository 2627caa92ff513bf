package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Routers go through a ring change in states, which are described in docs/router.md: each state
// but the last two begins when every router has acknowledged the one before, so that no key is
// ever missed or old.
//
//	stable ─▶ prepare ─▶ settle ─▶ the clients' list changes ─▶ move ─▶ finish ─▶ stable
//
// The first two pass while movers are prepared (prepare.go), and under the same conditions. If
// these no longer hold, routers change with the list, as any other client. Only settle has no
// way back: routers store items at the new owners already. Move ends when the movers have found
// nothing more, and before that no leaving member ends.

// settles tells whether routers store items at the new owners already, and clients are told of
// the old ring. Then the ring has to change.
func (o *Observed) settles() bool {
	t := o.Table
	return o.Cluster.Routers && t != nil && t.State == contract.RingSettle && t.Old == o.Record.Ring.Routed() &&
		t.New == o.Cluster.Ring.Of(t.New.Size).Routed() && t.New.Size <= o.StatefulSet.Replicas
}

// routersChange tells whether routers still look for items at the old owners, by the ring of the
// clients' list.
func (o *Observed) routersChange() bool {
	t := o.Table
	return o.Cluster.Routers && t != nil && t.New == o.Record.Ring.Routed() &&
		(t.State == contract.RingMove || t.State == contract.RingFinish && !t.Ended(o.Now))
}

// decideTable decides what routers are told, and holds the list back while they are prepared for
// it. o.Record is the ring of the list to come.
func (p *Plan) decideTable(o *Observed, before ring.Record) {
	p.Table = action.WriteTable{State: contract.RingStable, ListSize: p.ListSize}
	t := o.Table
	if !o.Cluster.Routers || t == nil || p.Replicas == 0 {
		return
	}
	hold := func(state string, size int32) {
		p.Prepares, p.ListSize, p.Record = true, o.ListSize, before
		p.Table = action.WriteTable{State: state, ListSize: size}
		p.wakeAt(t.Overdue())
	}
	next := o.Record.Ring
	moves := !o.Cluster.PlacementOff && (o.Cluster.Patience > 0 || next.Size > before.Ring.Size)
	change := next != before.Ring && moves && o.mayPrepare(before)
	switch {
	case t.State == contract.RingStable && change && t.New == before.Ring.Routed():
		hold(contract.RingPrepare, next.Size)
	case t.State == contract.RingPrepare && change && t.Old == before.Ring.Routed() && t.New == next.Routed():
		if t.Ended(o.Now) {
			hold(contract.RingSettle, next.Size)
			return
		}
		hold(contract.RingPrepare, next.Size)
	case t.State == contract.RingSettle && t.New == next.Routed() && t.Old == before.Ring.Routed():
		if p.Prepares || !t.Ended(o.Now) {
			hold(contract.RingSettle, next.Size)
			return
		}
		p.Table = action.WriteTable{State: contract.RingMove, ListSize: next.Size}
	case t.New != p.Record.Ring.Routed():
	case t.State == contract.RingSettle, t.State == contract.RingMove:
		p.Table.State = contract.RingMove
		if t.State == contract.RingMove && t.Ended(o.Now) && o.moversFoundNothing() {
			p.Table.State = contract.RingFinish
		}
	case t.State == contract.RingFinish && (!t.Ended(o.Now) || !t.Since.Add(ring.LeasesExpire).Before(o.Now)):
		p.Table.State = contract.RingFinish
		p.wakeAt(t.Since.Add(ring.LeasesExpire + time.Second))
		p.wakeAt(t.Overdue())
	}
}

// routersAsk tells whether routers still look for items at this leaving member, or will by this
// plan.
func (p *Plan) routersAsk(o *Observed, c *Claim) bool {
	return (o.routersChange() || p.Table.State == contract.RingMove) && o.isLeaving(c) && !c.Deleting && !o.overdue(c) && slices.Contains(o.Ready, c.Ordinal)
}

// leases tells whether keys are moved under their leases. Routers in other states don't know them.
func (p *Plan) leases(o *Observed) bool {
	return o.Cluster.Exclusive && p.Table.State == contract.RingMove
}

// moversFoundNothing tells whether nothing is left at the old owners: the items of members that
// stay are placed, and the movers of leaving ones only wait for their clients, or have ended.
func (o *Observed) moversFoundNothing() bool {
	return !slices.ContainsFunc(o.Claims, func(c Claim) bool {
		settles := func(d Drainer) bool { return d.ClaimUID == c.UID && d.Settles }
		return o.misplaced(&c) || o.isLeaving(&c) && o.waitsForMover(&c) && !slices.ContainsFunc(o.Drainers, settles)
	})
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
