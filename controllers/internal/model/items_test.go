package model

import "fmt"

// The model follows one item, the one that moves most: with the consistent client the last member
// owns it, at any size, and with the shuffling client another member. Clients write the item at any
// time, to the member on their list. A volume has no value of it, the value that was written last,
// or an older one.

// item is the value of the item on a volume.
type item int8

const (
	none item = iota
	older
	newest
)

// owners has the item's owner by client and size.
var owners = [...][ordinals + 1]int8{consistent: {0, 0, 1, 2}, shuffling: {0, 0, 0, 1}}

// itemOf returns the volume that the member serves from, or nil.
func (s *state) itemOf(i int8) *volume {
	p := &s.live.pods.members[i]
	if p.state != running {
		return nil
	}
	c := s.live.claimOf(i, p.generation)
	if c == nil {
		return nil
	}
	return s.volumeNamed(i, c.volume)
}

// owner returns the member that the clients ask for the item, or -1.
func (s *state) owner() int8 {
	l := &s.live.list
	if l.size == 0 || l.last.client == 0 {
		return -1
	}
	return owners[l.last.client][l.size]
}

// clients adds the events of clients.
func (s *state) clients(x *expansion) {
	x.class = traffic
	i := s.owner()
	if s.forgotten || i < 0 {
		return
	}
	if v := s.itemOf(i); v != nil && v.item != newest {
		x.add(event{what: writeItem, a: i}, func(n *state) {
			for j := range n.volumes {
				for slot := range n.volumes[j] {
					if v := &n.volumes[j][slot]; v.item == newest {
						v.item = older
					}
				}
			}
			n.itemOf(i).item, n.discarded = newest, false
		})
	}
}

// forget stops following the item, because a person has given it up.
func (s *state) forget() {
	s.forgotten = true
	for i := range s.volumes {
		for slot := range s.volumes[i] {
			s.volumes[i][slot].item = none
		}
	}
}

// ends returns the source and the owner of the item that a drainer moves; nil if there is no item
// to move, or no member to get it.
func (s *state) ends(i int8, d *drainer) (source, owner *volume) {
	to := owners[max(consistent, d.target.client)][d.target.size]
	if d.target.moves() {
		if to == i {
			return nil, nil
		}
		source = s.itemOf(i)
	} else if c := s.live.claimOf(i, d.generation); c != nil {
		source = s.volumeNamed(i, c.volume)
	}
	if source == nil || source.item == none {
		return nil, nil
	}
	if d.target.lost&(1<<to) != 0 {
		return source, source // the item is discarded
	}
	return source, s.itemOf(to)
}

// reaches tells whether the drainer reaches all members that it needs.
func (s *state) reaches(i int8, d *drainer) bool {
	if d.target.moves() && s.live.pods.members[i].state != running {
		return false
	}
	source, owner := s.ends(i, d)
	return source == nil || owner != nil
}

// moveItem moves the item to its owner, as a drainer does: a value that the owner has stays.
func (s *state) moveItem(i int8, d *drainer, takes bool) {
	source, owner := s.ends(i, d)
	if source == nil || owner == nil {
		return
	}
	if owner == source {
		s.discarded = s.discarded || source.item == newest
	}
	if owner.item == none {
		owner.item = source.item
	}
	if takes {
		source.item = none
	}
}

// itemEvents adds the events of a drainer before its end.
func (s *state) itemEvents(x *expansion, i int8, d *drainer) {
	source, owner := s.ends(i, d)
	if source == nil || owner == nil {
		return
	}
	if owner.item == none {
		x.add(event{what: copyItem, a: i}, func(n *state) { n.moveItem(i, d, false) })
	}
	if d.target.moves() {
		x.add(event{what: moveItem, a: i}, func(n *state) { n.moveItem(i, d, true) })
	}
}

// itemLost returns which wrong values clients get after a step.
func (s *state) itemLost(after *state) []string {
	if after.forgotten || after.mixed {
		return nil
	}
	var wrong []string
	if s.holds(newest) && !after.holds(newest) && !after.discarded {
		wrong = append(wrong, "what was written last is lost")
	}
	if i := after.owner(); i >= 0 {
		if v := after.itemOf(i); v != nil && v.item == older {
			wrong = append(wrong, fmt.Sprintf("member %d gives clients an old value", i))
		}
	}
	return wrong
}

func (s *state) holds(what item) bool {
	for i := range s.volumes {
		for _, v := range s.volumes[i] {
			if v.name != 0 && v.item == what {
				return true
			}
		}
	}
	return false
}

// itemAstray returns where the item is at rest although no client looks there.
func (s *state) itemAstray() []string {
	var wrong []string
	for i := range s.live.members.replicas {
		v := s.itemOf(i)
		if c := &s.live.claims[i][0]; v != nil && v.item != none && i != s.owner() && !c.deleting {
			wrong = append(wrong, fmt.Sprintf("member %d has an item that clients look for elsewhere", i))
		}
	}
	return wrong
}
