package plan

import (
	"example.com/memcached-operator/controllers/internal/ring"
)

// List is the clients' list. Any client of the API may have written it.
type List struct {
	// Servers is how many servers the list names.
	Servers int32
	// Recorded: the list has the annotation with the record. Record is nil if the annotation can't
	// be parsed.
	Recorded bool
	Record   *ring.Record
}

// ReadList sets ListSize, Record and, by that record, each claim's Moved. The list is nil if there
// is none. inStatus is how many servers status names. ReadList needs Cluster, StatefulSet and
// Claims.
func (o *Observed) ReadList(list *List, inStatus int32) {
	if list != nil {
		inStatus = max(inStatus, list.Servers)
	}
	o.ListSize = min(inStatus, o.MostMembers())
	o.Record = o.recordOf(list)
	for i := range o.Claims {
		o.Claims[i].Moved = o.Record.Moved(o.Claims[i].Moved)
	}
}

// recordOf returns the record of the rings. If the list has no record and no claim has a serial,
// every item counts as being where the list says. The rings are unknown if the list is missing or
// damaged, if it is older than a claim (it came back from a backup), or if it has more members or
// rings than there can be.
func (o *Observed) recordOf(list *List) ring.Record {
	var serials []int64
	members := int32(0)
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.Aside {
			continue
		}
		serials = append(serials, c.Moved)
		if c.LeavingSince.IsZero() { // members with the mark are off the list, and don't come back
			members = max(members, c.Ordinal+1)
		}
	}
	last := ring.LastSerial(serials...)
	switch {
	case list == nil:
	case !list.Recorded && last == 0:
		return ring.Record{Ring: o.Cluster.Ring.Of(o.ListSize)}
	case list.Record != nil:
		last = ring.LastSerial(append(serials, list.Record.Serial)...)
		if list.Record.Serial == last && list.Record.Ring.Size <= o.MostMembers() {
			return *list.Record
		}
	}
	return ring.Unknown(last, members)
}
