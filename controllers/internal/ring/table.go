package ring

import (
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// Table is what routers were told last.
type Table struct {
	// State is one of contract.RingStable to contract.RingFinish.
	State string
	// Old and New ring; in RingStable there is only New.
	Old, New Ring
	// Shared: other clients than routers ask members, too, so nobody takes leases.
	Shared bool
	// Since is when it was written, at the latest.
	Since time.Time
	// Acknowledged: by every router that runs.
	Acknowledged bool
}

const (
	// ClocksDiffer is by how much the operator's clock and the routers' may differ.
	ClocksDiffer = 5 * time.Second
	// LeasesExpire is how long a dead router's lease may be in a key's place.
	LeasesExpire = 6 * time.Second
)

// Ended tells whether the table's state has been reached everywhere, as far as is known.
func (t *Table) Ended(now time.Time) bool { return t.Acknowledged || !t.Overdue().After(now) }

// Overdue is when the state is no longer waited for.
func (t *Table) Overdue() time.Time { return t.Since.Add(contract.RingWaits + ClocksDiffer) }

// NewSize is how many members the new ring has; 0 without a table.
func (t *Table) NewSize() int32 {
	if t == nil {
		return 0
	}
	return t.New.Size
}
