package router

import (
	"bytes"
	"fmt"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/wire"
)

const (
	// memberBacklog is how many unsent bytes a member may have before clients that ask for it have to wait.
	memberBacklog = 2 << 20
	// memberRequests bounds a member's unanswered requests.
	memberRequests = 16 << 10
)

// member is a loop's connection to a member, which all clients of the loop share.
type member struct {
	stream
	address string
	// up means that there is a connection. If not, down is the reason.
	up   bool
	down string
	// unanswered are the requests in the order in which they were sent.
	unanswered queue
	// block is how many bytes of a data block are still to come.
	block int
	// heard is when the member last sent something, or had read enough of a request (progress), in the loop's
	// clock. taken is how many bytes it had read by then.
	heard int64
	taken uint64
	// counted is how many bytes are unsent, as counted in loop.held.
	counted int
	// waiting are the clients that wait for a smaller backlog.
	waiting []*client
	// lost asks for another connection; forget ends that.
	lost   chan struct{}
	forget func()
	// connections is how many connections there have been.
	connections int
	traffic     status.Traffic
	// failures bounds the logged failures.
	failures status.Seldom
	// keepsCAS means that the member accepts the CAS value for an item (memcached 1.6.27 and later).
	keepsCAS bool
	// refusal is the answer of a member that is never up.
	refusal string
	// bySeconds means that a flush_all removes items up to those stored in the second before (1.6.25 and
	// later).
	bySeconds bool
}

// full tells whether clients have to wait before they send this member more.
func (m *member) full() bool {
	m.count()
	return m.unsent() > memberBacklog || m.unanswered.n >= memberRequests || m.unsent() > crowdedBacklog && m.loop.held > m.loop.maxMemory
}

// attach adopts a new connection.
func (m *member) attach(l *loop, fd int, version string) {
	*m = member{address: m.address, lost: m.lost, forget: m.forget, waiting: m.waiting,
		traffic: m.traffic, failures: m.failures, connections: m.connections + 1,
		keepsCAS: ringchange.KeepsCAS(version), bySeconds: ringchange.FlushesBySeconds(version), up: true, heard: l.now}
	if err := m.open(l, fd, m); err != nil {
		m.fail(err.Error())
	}
	l.adopt()
}

// request makes room for the bytes of s, and appends s to the unanswered requests.
func (m *member) request(s *slot) {
	m.buffer()
	if m.unanswered.n == 0 {
		m.heard, m.taken = m.loop.now, m.passed
	}
	m.unanswered.push(s, m.passed+uint64(m.unsent()))
	s.pending = true
	if s.epoch == nil && s.job == nil {
		m.loop.enter(s)
	}
	m.touch()
}

// through writes the unsent bytes before the round is over, if n more bytes would not fit into a buffer. If
// the connection is broken, the loop finds out.
func (m *member) through(n int) {
	if len(m.out)+n > eventloop.Largest && !m.writes {
		m.write()
	}
}

// write sends as many of the unsent bytes as it can. write returns false if the connection is
// broken.
func (m *member) write() bool {
	passed := m.passed
	ok := m.flush()
	m.traffic.Sent += m.passed - passed
	m.count()
	return ok
}

// touch has the member flushed when the round is over.
func (m *member) touch() {
	if !m.dirty {
		m.dirty = true
		m.loop.members.dirty = append(m.loop.members.dirty, m)
	}
}

// Writable is called by the loop.
func (m *member) Writable() { m.touch() }

// Readable is called by the loop.
func (m *member) Readable() {
	before := len(m.in)
	b, ok := m.read(readSize)
	if !ok {
		m.fail("it closed the connection")
		return
	}
	if len(b) == 0 {
		return
	}
	m.heard = m.loop.now
	m.traffic.Received += uint64(len(b) - before)
	rest, ok := m.answers(b)
	if !ok {
		m.fail("it does not speak memcached's protocol")
		return
	}
	m.keep(rest)
	if len(m.waiting) > 0 && !m.full() {
		m.resume()
	}
}

// answers passes the member's answers on, and returns the incomplete rest.
func (m *member) answers(b []byte) (rest []byte, ok bool) {
	var a wire.Answer
	for len(b) > 0 {
		s := m.unanswered.front()
		if s == nil {
			return nil, false
		}
		if m.block > 0 {
			n := min(m.block, len(b))
			if !m.ends(b[:n]) {
				return nil, false
			}
			s.emit(b[:n])
			m.block -= n
			m.loop.coming -= n
			b = b[n:]
			if m.block == 0 && s.kind != wire.Values {
				m.finish(s)
			}
			continue
		}
		if !a.Parse(s.kind, b) {
			return b, true
		}
		if !m.line(s, &a) {
			return nil, false
		}
		b = b[len(a.Line):]
	}
	return nil, true
}

// ends tells whether a part of a data block has the block's line end at the right offset. If not, the bytes
// after it can't be trusted.
func (m *member) ends(part []byte) bool {
	is := func(at int, c byte) bool { return at < 0 || at >= len(part) || part[at] == c }
	return is(m.block-2, '\r') && is(m.block-1, '\n')
}

// line handles the line of an answer.
func (m *member) line(s *slot, a *wire.Answer) bool {
	switch {
	case !a.Fits(s.kind, s.verb):
		return false
	case s.parts > 0:
		s.part(a.Code, a.Line)
		m.finish(s)
		return true
	case m.loop.asksSource(s, a.Code):
		m.unanswered.pop()
		m.traffic.Count(s.verb, a.Code, m.loop.now-s.began)
		return true
	case s.outcome == wire.Failure && s.job == nil: // the client has got its answer
	case s.kind == wire.Values && a.Code == wire.Value && (s.outcome == wire.Value || string(a.Key) != string(s.key)):
		return false // the answer has another key than was asked for, and must not be passed on
	case s.kind == wire.Values && a.Code == wire.End && s.outcome == wire.Value:
		s.hidden = s.more
	case s.job != nil: // the job gets the whole answer
		if s.outcome = a.Code; m.loop.crowded(s, a.Block) {
			s.job.crowded()
			s.hidden = true
		}
	case a.Code == wire.Failure && s.lenient && !bytes.HasPrefix(a.Line, []byte("CLIENT_ERROR")):
		s.miss()
		s.hidden = true
	default:
		s.begin(a)
		if m.loop.crowded(s, a.Block) {
			s.fail(answerNoRoom)
			s.hidden = true
		}
	}
	s.line(a)
	m.loop.coming += a.Block
	if m.block = a.Block; m.block == 0 {
		m.finish(s)
	}
	return true
}

// finish is called when the first unanswered request is answered.
func (m *member) finish(s *slot) {
	m.unanswered.pop()
	outcome := s.outcome
	if !m.up {
		outcome = wire.Failure
	}
	m.traffic.Count(s.verb, outcome, m.loop.now-s.began)
	m.loop.answered(s)
}

// fail ends the connection. Unanswered requests get an error, and another connection is asked for.
func (m *member) fail(why string) {
	if !m.up {
		return
	}
	m.connections++
	m.up, m.down = false, why
	m.close()
	m.count()
	m.loop.coming -= m.block
	m.block = 0
	if more, say := m.failures.Says(m.loop.now); say {
		m.loop.router.config.Logf("member %s: %s; %d requests were unanswered; %d more failures since the last one", m.address, why, m.unanswered.n, more)
	}
	for m.unanswered.n > 0 {
		s := m.unanswered.front()
		s.fail(m.unavailable())
		m.finish(s)
	}
	m.resume()
	select {
	case m.lost <- struct{}{}:
	default:
	}
}

// unavailable returns the answer while there is no connection.
func (m *member) unavailable() string {
	if m.refusal != "" {
		return m.refusal
	}
	return fmt.Sprintf("SERVER_ERROR member %s is not available\r\n", m.address)
}

// resume lets the clients go on that wait for this member.
func (m *member) resume() {
	for _, c := range m.waiting {
		c.waits = false
		m.loop.resumeLater(c)
	}
	m.waiting = m.waiting[:0]
}

// HungUp is called by the loop.
func (m *member) HungUp() { m.Readable() }

// check fails a member that has been silent for too long.
func (m *member) check(patience time.Duration) {
	if m.up && m.unanswered.n > 0 && m.loop.now-m.heard > int64(patience/4) {
		m.progress()
	}
	if m.up && m.unanswered.n > 0 && m.loop.now-m.heard > int64(patience) {
		m.fail(fmt.Sprintf("it has not answered for %v", patience))
	}
}
