package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/drainer/router/change"
	"example.com/memcached-operator/drainer/routing"
)

// Ring is a client library's list of servers, and which of them owns a key.
type Ring struct {
	Servers []routing.Server
	Owner   routing.Owner
}

// Table is what a router knows of the rings. It does not change.
type Table struct {
	// Number grows with each table.
	Number int64
	// State of a ring change; in Stable, New is the only ring.
	State    change.State
	Old, New Ring
	// Shared: direct clients use the members, too, so there are no leases.
	Shared bool
	// Before is the number of the table before this one; 0 for none.
	Before int64
	// Key signs the numbers that routers leave at members.
	Key string
	// Until is when keys that may have moved are no longer served, because the others don't
	// wait for this router any longer; zero for never.
	Until time.Time
}

// servers of both rings, each address once.
func (t *Table) servers() (all []routing.Server) {
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

// asked are the members that requests of clients are sent to.
func (t *Table) asked() []routing.Server {
	if t.State == change.Finish {
		return t.New.Servers
	}
	return t.servers()
}

// rules that are not followed.
func (t *Table) without() change.Rules {
	if t.Shared {
		return change.Leaseless
	}
	return 0
}

// epoch counts the requests that began with a table.
type epoch struct {
	number     int64
	state      change.State
	unanswered int
}

// check says why a table can't be taken.
func (r *Router) check(t *Table) error {
	switch before := r.table.Load(); {
	case t.New.Owner == nil || len(t.New.Servers) == 0:
		return errors.New("a table without servers")
	case t.State != change.Stable && t.Old.Owner == nil:
		return fmt.Errorf("a table in state %s without an old ring", t.State)
	case before != nil && t.Number <= before.Number:
		return fmt.Errorf("table %d comes after table %d", t.Number, before.Number)
	}
	return nil
}

// Apply takes a new table. It is used for the requests that begin from now on.
func (r *Router) Apply(t *Table) error {
	if err := r.check(t); err != nil {
		return err
	}
	r.table.Store(t)
	r.fence.applied(t)
	for _, l := range r.loops {
		l.poller.Post(func() { l.apply(t) })
	}
	return nil
}

// apply connects to members that are new, and takes the table when that is done.
func (l *loop) apply(t *Table) {
	for _, s := range t.servers() {
		if l.member(s) == nil {
			l.members.all = append(l.members.all, l.newMember(s.Address()))
		}
	}
	l.next = t
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

// unconnected is a member that a table waits for, nil if there is none. Later it may be down as any
// other; so it may when others don't wait any longer.
func (l *loop) unconnected(t *Table) *member {
	if t == nil || t.State != change.Prepare || t.over() {
		return nil
	}
	for _, s := range t.New.Servers {
		if m := l.member(s); m.connections == 0 {
			return m
		}
	}
	return nil
}

// adopt makes the next table the loop's, if its members are connected, and forgets members
// that it doesn't name. The first table is taken at once. In prepare this router may not act as
// in stable: others may have gone on to settle. So it serves what the old owners have, and
// acknowledges when the new ones are connected.
func (l *loop) adopt() {
	if l.next == nil || l.table != nil && l.unconnected(l.next) != nil {
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
	l.epoch = &epoch{number: t.Number, state: t.State}
	l.epochs = append(l.epochs, l.epoch)
	l.judge()
	named := find(t.servers())
	for _, m := range l.members.all {
		if !slices.Contains(named, m) {
			l.members.leaving = append(l.members.leaving, m)
		}
	}
	l.members.all = named
}

func (l *loop) newMember(address string) *member {
	ctx, cancel := context.WithCancel(l.router.serving)
	m := &member{address: address, down: untried, lost: make(chan struct{}, 1), forget: cancel}
	lost := m.lost
	l.router.goroutines.Go(func() { l.router.keepConnected(ctx, l, m, address, lost) })
	return m
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

// owners of a key: where it is asked for, or if its owner changes, the new one and the
// old one.
func (l *loop) owners(key []byte) (owner, old *member) {
	l.sketch.See(key)
	if l.lost {
		return l.refuser, nil
	}
	owner = l.new[l.table.New.Owner.Owner(key)]
	if l.table.State == change.Stable {
		return owner, nil
	}
	if old = l.old[l.table.Old.Owner.Owner(key)]; old == owner {
		return owner, nil
	}
	return owner, old
}

// enter counts a request that is under way.
func (l *loop) enter(s *slot) {
	s.epoch = l.epoch
	s.epoch.unanswered++
}

func (s *slot) leave() {
	if s.epoch != nil {
		s.epoch.unanswered--
		s.epoch = nil
	}
}

// acknowledged is the number of the table up to which all is done: requests that began
// with earlier ones are answered. If there is a later one, why says what is waited for.
func (l *loop) acknowledged() (number int64, why string) {
	kept := l.epochs[:0]
	number = l.table.Number
	for _, e := range l.epochs {
		if e.unanswered > 0 && e != l.epoch {
			if number == l.table.Number {
				number = e.number
			}
			why = fmt.Sprintf("%d requests that began with table %d are not answered", e.unanswered, e.number)
		}
		if e.unanswered > 0 || e == l.epoch {
			kept = append(kept, e)
		}
	}
	l.epochs = kept
	if m := l.unconnected(l.next); m != nil {
		return number, "member " + m.address + ": " + m.down
	}
	if m := l.unconnected(l.table); m != nil { // it is the first table
		return 0, "member " + m.address + ": " + m.down
	}
	return number, why
}

// Acknowledged is the number of the table that all requests under way began with. If it
// isn't the present table's, why says what is waited for.
func (r *Router) Acknowledged() (number int64, why string) {
	number = r.table.Load().Number
	for _, l := range r.loops {
		l.published.mu.Lock()
		if n := l.published.acknowledged; n < number {
			number, why = n, l.published.waitsFor
		}
		l.published.mu.Unlock()
	}
	if t, waits := r.fence.offered(); t != nil && why == "" {
		why = waits
	}
	return number, why
}

// Number of the table that was read last.
func (r *Router) Number() int64 {
	if t, _ := r.fence.offered(); t != nil {
		return t.Number
	}
	return r.table.Load().Number
}
