package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// What routers have been told, and the leases that they and movers may have taken (table.go).

// settles tells whether routers store items at the new owners already while clients are told of the
// old ring. Then the ring has to change. Any client may have written the table, so it only counts
// if all members that it leaves out have the leaving mark.
func (o *Observed) settles() bool {
	t := o.Table
	return o.Cluster.Routers && t != nil && t.State == contract.RingSettle && t.Old == o.Record.Ring &&
		t.New.Size > 0 && t.New == o.Cluster.Ring.Of(t.New.Size) && t.New.Size <= o.StatefulSet.Replicas &&
		!slices.ContainsFunc(o.Claims, func(c claims.Claim) bool {
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

// routersAskOldOwners tells whether routers look for items at leaving members, too. Then these
// items have to be moved, even if another size is wanted now.
func (o *Observed) routersAskOldOwners() bool {
	return o.routersChange() && o.Table.State == contract.RingMove
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
