package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// routers has the table that routers have been given, and the leases that they and movers may have taken
// (table.go).
type routers struct {
	// settle: routers store items at the new owners already while clients are told of the old ring.
	// Then the ring has to change.
	settle bool
	// change: routers still look for items at the old owners during the change to the clients' ring.
	// askOldOwners: they look at leaving members, too. Then these items have to be moved, even if
	// another size is wanted now.
	change, askOldOwners bool
	// leases: routers and movers may take leases. leasesWait tells why items can't be moved or drained
	// without leases yet, if only routers call the members; empty if no lease can exist. A drainer
	// would take a lease for a newer value, and the item would be lost when the lease expires.
	leases     bool
	leasesWait string
	// leasesExpire is when all leases have expired that were taken before the ring became stable; zero
	// for a change that has not ended.
	leasesExpire time.Time
}

func routersOf(o *Observed) (r routers) {
	t := o.Table
	if !o.Cluster.Routers || t == nil {
		return r
	}
	// Any client may have written the table, so it only counts if all members that it leaves out have
	// the leaving mark.
	r.settle = t.State == contract.RingSettle && t.Old == o.Record.Ring &&
		t.New.Size > 0 && t.New.Whole() == o.Cluster.Ring.Of(t.New.Size) && t.New.Size <= o.StatefulSet.Replicas &&
		!slices.ContainsFunc(o.Claims, func(c claims.Claim) bool {
			return !c.Aside && c.LeavingSince.IsZero() && c.Ordinal >= t.New.Size && c.Ordinal < t.Old.Size
		})
	r.askOldOwners = t.New == o.Record.Ring && t.State == contract.RingMove
	r.change = r.askOldOwners || t.New == o.Record.Ring && t.State == contract.RingFinish && !t.Ended(o.Now)
	r.leases = t.State != contract.RingStable && !t.Shared
	if o.Cluster.Exclusive && t.State == contract.RingStable {
		r.leasesExpire = t.Since.Add(ring.LeasesExpire + time.Second)
	}
	switch {
	case r.leases:
		r.leasesWait = "routers change rings" // the routers' answers bring the next state
	case r.leasesExpire.After(o.Now):
		r.leasesWait = "routers have changed rings, and leases of the last seconds may be there"
	}
	return r
}
