package fence

import (
	"errors"
	"fmt"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/routing"
)

// Ring is a client library's list of servers, and which of them owns a key.
type Ring struct {
	Servers []routing.Server
	Owner   routing.Owner
}

// Table is a contract.RingTable whose rings are ready for use, and is immutable.
type Table struct {
	// Number grows with each table.
	Number int64
	// State is that of a ring change; in Stable, New is the only ring.
	State    ringchange.State
	Old, New Ring
	// Shared means that direct clients use the members, too, so there are no leases.
	Shared bool
	// Before is the number of the previous table; 0 for none.
	Before int64
	// Acknowledged means that, according to the operator, every router had acknowledged the previous table.
	Acknowledged bool
	// Key authenticates the numbers that routers leave at members.
	Key string
	// Signer is the public key of the table's writer; empty if there is none.
	Signer string
}

// Follows returns why the table can't be taken after the previous one, which is nil for the first.
func (t *Table) Follows(before *Table) error {
	switch {
	case t.New.Owner == nil || len(t.New.Servers) == 0:
		return errors.New("the table has no servers")
	case t.State != ringchange.Stable && t.Old.Owner == nil:
		return fmt.Errorf("the table is in state %s, and has no old ring", t.State)
	case before != nil && t.Number <= before.Number:
		return fmt.Errorf("table %d comes after table %d", t.Number, before.Number)
	}
	return nil
}

// Servers returns the servers of both rings, each address once.
func (t *Table) Servers() (all []routing.Server) {
	known := map[string]bool{}
	for _, ring := range []Ring{t.New, t.Old} {
		for _, s := range ring.Servers {
			if !known[s.Address()] {
				known[s.Address()] = true
				all = append(all, s)
			}
		}
	}
	return all
}

// Asked returns the members that clients' requests are sent to.
func (t *Table) Asked() []routing.Server {
	if t.State == ringchange.Finish {
		return t.New.Servers
	}
	return t.Servers()
}

// Without returns the rules that are not followed.
func (t *Table) Without() ringchange.Rules {
	if t.Shared {
		return ringchange.Leaseless
	}
	return 0
}

// AcknowledgedBefore tells whether every router that the operator knows of had acknowledged the previous
// table.
func (t *Table) AcknowledgedBefore() bool { return t.Acknowledged || t.CameEarly() }

// CameEarly tells whether the operator wrote this table before its waiting time for the previous one was
// over. Then all routers had acknowledged the previous table.
func (t *Table) CameEarly() bool {
	return t.Before == 0 || t.Number-t.Before < int64(contract.RingWaits/time.Second)
}
