package plan

import (
	"errors"
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ring"
)

// The clients' list says where applications look, and has the record of the rings. A scaling
// changes the list once: members are off it before they leave, and joining members are added
// together, when all of them are ready.

// List is the clients' list as it was read. Any client of the API may have written it.
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

// decideList decides where clients look: at the members of the next size, but at no more than now
// while items have to be moved. If this makes another ring, items may have to be moved by it, and
// no member joins before that. decideList sets o.Record to the new ring for the rest of the plan,
// and p.From to the record before it.
func (p *Plan) decideList(o *Observed) {
	wanted := p.Replicas
	if o.moving() {
		wanted = min(wanted, o.Record.Ring.Size)
	}
	p.ListSize = o.nextListSize(wanted)
	if wanted > 0 && o.settles() {
		p.ListSize = o.Table.NewSize()
	}
	p.From = o.Record
	o.Record = p.From.Next(o.Cluster.Ring.Of(p.ListSize))
	p.Record = o.Record
	if p.Record != p.From && !o.drainRuns() && o.sizeWhileMoving(p.Replicas) < p.Replicas {
		p.Replicas, p.SizeBlocked = o.sizeWhileMoving(p.Replicas), BlockedByMove
	}
}

func (p *Plan) writeList(*Observed) {
	p.add(action.ApplyService{}, action.ApplyListService{}, action.ApplyDiscovery{},
		action.WriteList{ListSize: p.ListSize, Record: p.Record, From: p.From, Replicas: p.Replicas})
}

func (p *Plan) writeEndpoints(*Observed) { p.add(action.WriteEndpoints{ListSize: p.ListSize}) }

// tellMembers tells the supervisors, which answer by the protocol of discovery.
func (p *Plan) tellMembers(o *Observed) {
	if o.Cluster.Discovery {
		for _, pod := range o.MemberPods {
			p.add(action.TellMember{Pod: pod})
		}
	}
}

// nextListSize is how many members the list names next, if that many are wanted. It grows
// when all missing members are ready. A member stays on the list when it isn't ready, so
// a restart changes nothing.
func (o *Observed) nextListSize(wanted int32) int32 {
	for i := o.ListSize; i < wanted; i++ {
		if !slices.Contains(o.Ready, i) {
			return o.ListSize
		}
	}
	return wanted
}

// MayWriteList is asked before the clients' list changes. The live record must be the one that the
// plan saw: otherwise two rings could get the same serial, or a ring whose items have to be moved
// could be forgotten. The size must be allowed to change, too. MayWriteList needs what
// MaySetReplicas needs.
func MayWriteList(live *Observed, a action.WriteList) error {
	if live.Record != a.From && live.Record != a.Record {
		return errors.New("the clients' list has changed, and the cache is stale")
	}
	if live.StatefulSet.Exists && live.staying() == a.Replicas {
		return nil
	}
	return MaySetReplicas(live, a.Replicas)
}
