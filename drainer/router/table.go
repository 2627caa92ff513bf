package router

import (
	"context"
	"slices"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/routing"
)

// Ring is a ring of a table.
type Ring = fence.Ring

// Table tells a router about the rings.
type Table = fence.Table

// answerLate is the answer for keys that other routers may ask another member for.
const answerLate = "SERVER_ERROR the ring changes, and this router has not been told how\r\n"

// Apply takes a new table, for new requests.
func (r *Router) Apply(t *Table) error {
	if err := t.Follows(r.table.Load()); err != nil {
		return err
	}
	r.table.Store(t)
	r.reserveFiles(t)
	r.fence.Apply(t)
	for _, l := range r.loops {
		l.poller.Post(func() { l.apply(t) })
	}
	return nil
}

// Offer offers the router a table that was read. The router takes the table at once, or Offer returns false
// and has to be called again after some time. Until then Acknowledged says why.
func (r *Router) Offer(t *Table) (taken bool, err error) {
	if err := t.Follows(r.table.Load()); err != nil {
		return false, err
	}
	if r.fence != nil && !r.fence.MayTake(t) {
		return false, nil
	}
	return true, r.Apply(t)
}

// Table returns the table that was last applied.
func (r *Router) Table() *Table { return r.table.Load() }

// apply connects to new members, and takes the table when they are connected.
func (l *loop) apply(t *Table) {
	for _, s := range t.Servers() {
		if l.member(s) == nil {
			l.members.all = append(l.members.all, l.newMember(s.Address()))
		}
	}
	l.next, l.offered = t, l.now
	l.adopt()
}

func (l *loop) member(s routing.Server) *member {
	address := s.Address()
	for _, m := range l.members.all {
		if m.address == address {
			return m
		}
	}
	return nil
}

// unconnected returns a member that a table waits for, nil if there is none. Once connected, a member may go
// down without being waited for. No member is waited for when the other routers don't wait any longer.
func (l *loop) unconnected(t *Table) *member {
	if t == nil || t.State != ringchange.Prepare {
		return nil
	}
	for _, s := range t.New.Servers {
		if m := l.member(s); m.connections == 0 {
			return m
		}
	}
	return nil
}

// adopt makes the next table the loop's, if its members are connected, and forgets members that the table
// doesn't name. The first table is taken at once. In Prepare this router may not act as in Stable, because
// others may have gone on to Settle. So the router serves what the old owners have, and acknowledges when the
// new ones are connected. Once the router has known of a later table than its own, it waits for the new
// owners only as long as the others may be waited for. After that, keys of members that it can't reach get
// errors.
func (l *loop) adopt() {
	bound := l.router.config.LeftBehind
	waits := l.table != nil && l.now-l.offered < int64(bound) && l.router.fence.SeenLaterThan(l.table.Number) < bound
	if l.next == nil || waits && l.unconnected(l.next) != nil {
		return
	}
	t := l.next
	find := func(servers []routing.Server) (all []*member) {
		for _, s := range servers {
			all = append(all, l.member(s))
		}
		return all
	}
	l.table, l.next, l.old, l.new = t, nil, find(t.Old.Servers), find(t.New.Servers)
	l.epochs.Begin(t)
	l.judge()
	named := find(t.Servers())
	for _, m := range l.members.all {
		if !slices.Contains(named, m) {
			l.members.leaving = append(l.members.leaving, m)
		}
	}
	l.members.all = named
}

func (l *loop) newMember(address string) *member {
	ctx, cancel := context.WithCancel(l.router.serving)
	m := &member{address: address, down: status.Untried, lost: make(chan struct{}, 1), forget: cancel}
	r, lost := l.router, m.lost
	told := eventloop.Loop{
		Connected: func(fd int, version string) bool {
			r.version.Store(&version)
			return l.poller.Post(func() { m.attach(l, fd, version) })
		},
		Failed: func(why string) { l.poller.Post(func() { m.down = why }) },
	}
	if r.config.Fence { // a ring that never changes may name a member twice
		told.Places = &l.places
		told.Avoid = func(other, why string) { l.poller.Post(func() { l.avoid(other, why) }) }
	}
	r.goroutines.Go(func() { r.members.Keep(ctx, address, lost, told) })
	return m
}

// avoid makes a member unavailable, because another member's name leads to its address, too.
func (l *loop) avoid(address, why string) {
	for _, m := range slices.Concat(l.members.all, l.members.leaving) {
		if m.address == address {
			m.fail(why)
		}
	}
}

// leave closes the connections of members that are no longer named.
func (l *loop) leave() {
	kept := l.members.leaving[:0]
	for _, m := range l.members.leaving {
		if m.up && m.unanswered.n > 0 {
			kept = append(kept, m)
			continue
		}
		m.forget()
		if m.up {
			m.up, m.down = false, "it has left"
			m.close()
			m.count()
		}
	}
	l.members.leaving = kept
}

// owners returns a key's owner. If the owner changes, owners returns the new one and the old one.
func (l *loop) owners(key []byte) (owner, old *member) {
	l.sketch.See(key)
	if l.refusesAll {
		return l.refuser, nil
	}
	owner = l.new[l.table.New.Owner.Owner(key)]
	if l.table.State == ringchange.Stable {
		return owner, nil
	}
	if old = l.old[l.table.Old.Owner.Owner(key)]; old == owner {
		return owner, nil
	}
	return owner, old
}

// refuses tells which keys a router refuses if it has known of a later table than its own for the time
// behind. After the bound the router refuses keys that may have moved. The router refuses all keys if it
// can't know which have moved: in Stable, and after twice the bound, because there may be another ring
// change.
func refuses(s ringchange.State, behind, bound time.Duration, mustLook bool) (moved, all bool) {
	moved = mustLook || behind >= bound
	return moved, moved && (s == ringchange.Stable || behind >= 2*bound)
}

// judge decides which keys the loop still serves.
func (l *loop) judge() {
	t := l.table
	if t == nil {
		return
	}
	number := t.Number
	if l.next != nil {
		number = l.next.Number
	}
	bound := l.router.config.LeftBehind
	behind, latest := l.router.fence.Behind(number)
	mustLook := l.router.fence.MustLook()
	moved, all := refuses(t.State, behind, bound, mustLook)
	l.refusesMoved = moved
	if all != l.refusesAll && l == l.router.loops[0] && !mustLook {
		if all {
			l.router.config.Logf("this router was left behind: it has table %d, and other routers have table %d; it refuses all requests", number, latest)
		} else {
			l.router.config.Logf("this router has table %d and is no longer left behind: it serves requests again", number)
		}
	}
	l.refusesAll = all
}

// outdated tells whether other routers may be in a state by now that is not compatible with the job's.
func (j *job) outdated() bool {
	e := j.slot.epoch
	return j.loop.refusesMoved || e != nil && j.loop.router.fence.Outdated(e.Number)
}

// enter counts a request in its table's epoch.
func (l *loop) enter(s *slot) {
	s.epoch = l.epochs.Enter()
}

func (s *slot) leave() {
	if s.epoch != nil {
		s.epoch.Leave()
		s.epoch = nil
	}
}

// acknowledged returns the number of the latest table before which all requests are answered. If there is a
// later table, why says what it waits for.
func (l *loop) acknowledged() (number int64, why string) {
	number, why = l.epochs.Acknowledged()
	if m := l.unconnected(l.next); m != nil {
		return number, "member " + m.address + ": " + m.down
	}
	if m := l.unconnected(l.table); m != nil { // this is the first table
		return 0, "member " + m.address + ": " + m.down
	}
	return number, why
}

// Acknowledged returns the number of the table that all unanswered requests began with. If it isn't the
// present table's, why says what it waits for.
func (r *Router) Acknowledged() (number int64, why string) {
	number, why = r.boards().Acknowledged(r.table.Load().Number)
	if t, waits := r.fence.Offered(); t != nil && why == "" {
		why = waits
	}
	return number, why
}

// Number returns the number of the table that was last read.
func (r *Router) Number() int64 {
	if t, _ := r.fence.Offered(); t != nil {
		return t.Number
	}
	return r.table.Load().Number
}
