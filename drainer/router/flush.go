package router

import (
	"slices"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
)

// A flush_all is obeyed (invariant 11). Members are flushed at different moments. In a ring change a key can
// be read at a member that isn't flushed yet, and be copied to a member that is. So when all members are
// flushed, all are flushed again, before the client is answered. The second flush removes the items that were
// copied until then, and the leases of keys still to be copied. A lease that is taken later finds an old
// owner that is flushed.
//
// A memcached of 1.6.25 or later keeps items that were stored within the same second of its clock as the flush.
// With such a member, all are flushed again after flushRest, and a router copies a key only soon after it has
// its lease. Movers look for flushes themselves (package move).

// flushRest is the time between the two flushes: copies that were on their way at the first one are stored by
// then, and memcached's clock shows another second.
const flushRest = 2 * time.Second

// repeatedRequest is a request that is sent to all members again when they have answered.
type repeatedRequest struct {
	text []byte
	// due is when to send it again, in the loop's clock.
	due int64
}

// everywhere sends a request to all members. The client gets one answer: an error if there is one.
func (c *client) everywhere(r *wire.Request) {
	l := c.loop
	s := l.slot()
	s.verb, s.kind, s.quiet = r.Verb, wire.OneLine, r.Quiet
	text := r.AppendTo(nil)
	c.push(s)
	if source := l.router.source; source != nil && r.Verb == wire.FlushAll {
		source.Flushed()
	}
	if l.table.State != ringchange.Stable {
		s.repeat = &repeatedRequest{text: text}
		c.jobs++ // the client's next request comes after both
	}
	l.sendAll(s, text)
}

// sendAll sends a request to all members.
func (l *loop) sendAll(s *slot, text []byte) {
	all := l.members.all
	if l.refusesAll {
		all = []*member{l.refuser}
	}
	s.parts = len(all)
	for _, m := range all { // s may be answered and reused after the last one
		if !m.up {
			s.fail(m.unavailable())
			l.answered(s)
			continue
		}
		m.request(s)
		m.out = append(m.out, text...)
	}
}

// repeats tells whether a request that all members have answered is sent again.
func (l *loop) repeats(s *slot) bool {
	switch {
	case s.repeat == nil:
		return false
	case s.client == nil:
		s.repeat = nil
		return false
	case s.outcome == wire.Failure:
		s.repeat = nil
		s.client.jobs--
		return false
	}
	if s.repeat.due = l.now; slices.ContainsFunc(l.members.all, func(m *member) bool { return m.bySeconds }) {
		s.repeat.due += int64(flushRest)
	}
	l.repeated = append(l.repeated, s)
	return true
}

// repeat sends the requests that are due.
func (l *loop) repeat() {
	repeated := l.repeated
	l.repeated = nil
	for _, s := range repeated {
		switch {
		case s.client == nil:
			s.parts = 1
			l.answered(s)
		case l.now < s.repeat.due:
			l.repeated = append(l.repeated, s)
		default:
			text := s.repeat.text
			s.repeat = nil
			s.client.jobs--
			l.sendAll(s, text)
		}
	}
}
