package plan

import (
	"errors"
	"slices"

	"example.com/memcached-operator/controllers/internal/ring"
)

// The clients' list says where applications look, and keeps the record of the rings
// that it made. A scaling changes it once: members that are to leave are off it before
// they do; members that join come on it together, when all of them are ready.

// List is the clients' list as it was read. Anybody may have written it.
type List struct {
	// Servers that it names, or that status has named since.
	Servers int32
	// Recorded: it has a record of the rings. Record is that one, or nil where what is
	// there is none.
	Recorded bool
	Record   *ring.Record
}

// ReadList fills in where clients look, by the list; nil where there is none. It needs
// Cluster, StatefulSet and Claims.
func (o *Observed) ReadList(list *List, told int32) {
	if list != nil {
		told = max(told, list.Servers)
	}
	o.ListSize = min(told, o.MostMembers())
	o.Record = o.recordOf(list)
	for i := range o.Claims {
		o.Claims[i].Placed = o.Record.Placed(o.Claims[i].Placed)
	}
}

// recordOf is the record of the rings. An operator that kept none had everything where
// its list says. Where the list is gone, spoilt, older than what a claim tells of (one
// that came back from a backup), or of more members or rings than there can be, nobody
// knows.
func (o *Observed) recordOf(list *List) ring.Record {
	var serials []int64
	members := int32(0)
	for i := range o.Claims {
		if c := &o.Claims[i]; !c.Aside {
			serials, members = append(serials, c.Placed), max(members, c.Ordinal+1)
		}
	}
	last := ring.Last(serials...)
	switch {
	case list == nil:
	case !list.Recorded && last == 0:
		return ring.Record{Ring: o.Cluster.Ring.Of(o.ListSize)}
	case list.Record != nil:
		last = ring.Last(append(serials, list.Record.Serial)...)
		if list.Record.Serial == last && list.Record.Ring.Size <= o.MostMembers() {
			return *list.Record
		}
	}
	return ring.Unknown(last, members)
}

// decideList decides where clients look: at the members that there are to be, but at no more
// than before while items have to be placed. If this makes another ring, items may have to
// be placed by it, and no member joins until they are. The rest of the plan goes by the new
// ring: o.Record is set to it, and list returns the record from before.
func (p *Plan) decideList(o *Observed) (before ring.Record) {
	wanted := p.Replicas
	if o.placing() {
		wanted = min(wanted, o.Record.Ring.Size)
	}
	p.ListSize = o.nextListSize(wanted)
	before = o.Record
	o.Record = before.Next(o.Cluster.Ring.Of(p.ListSize))
	p.Record = o.Record
	if p.Record != before && !o.drainRuns() && o.sizeWhilePlacing(p.Replicas) < p.Replicas {
		p.Replicas, p.SizeBlocked = o.sizeWhilePlacing(p.Replicas), BlockedByPlacement
	}
	return before
}

// nextListSize is how many members the list names, if so many are wanted. It grows when all the
// missing ones are ready. A member stays on the list, ready or not, so that a restart
// changes nothing.
func (o *Observed) nextListSize(wanted int32) int32 {
	for i := o.ListSize; i < wanted; i++ {
		if !slices.Contains(o.Ready, i) {
			return o.ListSize
		}
	}
	return wanted
}

// MayWriteList asks before clients are told where to look. The live record must be the one
// that the plan saw: otherwise two rings could get the same number, or a ring whose items
// have to be placed could be forgotten. And the size must be allowed to change. It needs
// what MaySetReplicas needs.
func MayWriteList(live *Observed, a WriteList) error {
	if live.Record != a.From && live.Record != a.Record {
		return errors.New("the clients' list is another one than the cache has")
	}
	if live.StatefulSet.Exists && live.StatefulSet.Replicas == a.Replicas {
		return nil
	}
	return MaySetReplicas(live, a.Replicas)
}
