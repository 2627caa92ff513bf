package ring

import (
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// Table is the contract.RingTable that routers were told last, as far as the plan needs it: by the
// rings of records.
type Table struct {
	State contract.RingState
	// Old and New are the rings of a change; in RingStable there is only New.
	Old, New Ring
	// Shared: other clients than routers call members, too, so no router or mover takes leases.
	Shared bool
	// Since is the latest time at which the table can have been written.
	Since time.Time
	// Acknowledged: all running routers have acknowledged the table.
	Acknowledged bool
}

// Within tells whether all routers have acknowledged that they look for items only in this ring.
func (t *Table) Within(r Ring) bool {
	return t != nil && t.New == r && t.Acknowledged && (t.State == contract.RingStable || t.State == contract.RingFinish)
}

const (
	// ClocksDiffer is by how much the operator's clock and the routers' may differ.
	ClocksDiffer = 5 * time.Second
	// LeasesExpire is how long the lease of a dead router may occupy a key.
	LeasesExpire = 6 * time.Second
)

// Ended tells whether all routers have reached the table's state, or have had the time to.
func (t *Table) Ended(now time.Time) bool { return t.Acknowledged || !t.Overdue().After(now) }

// Overdue is when the operator no longer waits for routers to reach the state.
func (t *Table) Overdue() time.Time { return t.Since.Add(contract.RingWaits + ClocksDiffer) }

// NewSize is how many members the new ring has; 0 without a table.
func (t *Table) NewSize() int32 {
	if t == nil {
		return 0
	}
	return t.New.Size
}
