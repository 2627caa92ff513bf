package router

import (
	"unsafe"

	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/wire"
)

// slot is one request to members, and holds its place in the order of the client's answers.
type slot struct {
	// next is the next in the client's order, or in the loop's list of free ones.
	next   *slot
	client *client // nil when the client has gone
	verb   wire.Verb
	kind   wire.Kind
	// key is the key in the request to the member, for a classic read and a meta command with an echo.
	key []byte
	// absent is the answer to a meta read if there is no item; empty if it repeats nothing of the request.
	absent []byte
	// echo says where the answer repeats the key.
	echo wire.Echo
	// began is in nanoseconds of the loop's clock.
	began int64
	// held is the part of the answer that can't be sent yet, because earlier requests aren't answered.
	held []byte
	// size is how many bytes were emitted.
	size int
	// parts is how many members have yet to answer a request to all of them.
	parts int
	// repeat is set if a request to all members is to be sent twice; nil otherwise.
	repeat *repeatedRequest
	// outcome is that of the answer, once its first line is known.
	outcome wire.Code

	// asks means that the other cache is asked if there is no item (package onmiss). Then asked is the key, and request
	// the request.
	asks           bool
	asked, request []byte

	lenient bool // a failed read is answered as a miss
	missed  bool // the read was answered as a miss
	quiet   bool // some answers to the request are hidden
	silent  bool // all answers are hidden: the request is the router's own
	more    bool // more keys of the same read follow, so there is no END yet
	hidden  bool // this answer is not for the client
	started bool // a part of it has been sent
	done    bool
	pending bool // a member has yet to answer it

	// job is set if this is a step of a job; then there is no client.
	job *job
	// epoch is that of the table with which the request began. The epoch counts the request until it is
	// answered.
	epoch *fence.Epoch
}

// slotBytes is the size of a slot without its key.
const slotBytes = int(unsafe.Sizeof(slot{}))

// memory is how many bytes the slot takes. These bytes count in loop.held while the slot's client waits: one
// silent member holds up all later answers, even those that have no bytes to keep.
func (s *slot) memory() int {
	return slotBytes + cap(s.key) + cap(s.absent) + cap(s.asked) + cap(s.request)
}

// begin is called with the first line of an answer.
func (s *slot) begin(a *wire.Answer) {
	s.outcome = a.Code
	switch {
	case s.silent || s.quiet && wire.Hidden(s.verb, a.Code):
		s.hidden = true
	case s.more && a.Code == wire.End:
		s.hidden = true
	}
}

// emit passes on a part of the answer.
func (s *slot) emit(b []byte) {
	c := s.client
	switch {
	case s.hidden:
	case s.job != nil:
		s.job.take(b)
	case c == nil:
	case c.head == s && s.parts == 0:
		s.size += len(b)
		if !c.mute {
			s.started = true
			c.send(b)
		}
	default:
		s.size += len(b)
		c.hold(s, b)
	}
}

// line passes on the line of an answer.
func (s *slot) line(a *wire.Answer) {
	at, ok := s.echo.In(a)
	if !ok {
		s.emit(a.Line)
		return
	}
	for _, part := range [][]byte{a.Line[:at], []byte(" k"), s.key, []byte(" b"), a.Line[at:]} {
		s.emit(part)
	}
}

// fail answers with an error of the router's own.
func (s *slot) fail(answer string) {
	c := s.client
	switch {
	case s.job != nil:
		s.job.Fail("")
	case c == nil:
	case s.started:
		// A part of a value has been sent: no error can be sent any more.
		c.broken()
		return
	case s.parts > 0:
		s.part(wire.Failure, []byte(answer))
	case s.lenient:
		c.unhold(s)
		s.miss()
	default:
		c.unhold(s)
		s.outcome = wire.Failure
		if s.hidden = s.silent || s.quiet && !s.verb.Meta(); !s.hidden {
			s.emit([]byte(answer))
		}
	}
}

// miss answers a failed read as if there were no item: an error would end the answer to all keys of the read,
// and libraries would then assume that the router is down.
func (s *slot) miss() {
	s.outcome, s.missed = wire.Failure, true
	switch s.hidden = s.more; {
	case s.more:
	case s.kind == wire.Values:
		s.emit([]byte(wire.AnswerEnd))
	case s.quiet:
		s.hidden = true
	case len(s.absent) > 0:
		s.emit(s.absent)
	default:
		s.emit([]byte(wire.AnswerMiss))
	}
}

// part handles the answer of one of several members. The first error is the client's answer.
func (s *slot) part(code wire.Code, line []byte) {
	if s.outcome == wire.Failure || s.client == nil {
		return
	}
	if s.outcome = code; code == wire.Failure || s.parts == 1 && s.repeat == nil {
		if s.hidden = s.quiet; !s.hidden {
			s.size += len(line)
			s.client.hold(s, line)
		}
	}
}

// queue is a ring buffer of the requests that a member has been sent, in order.
type queue struct {
	ring  []queued
	first int
	n     int
}

type queued struct {
	*slot
	// at is the number of bytes to the member before this request.
	at uint64
}

func (q *queue) push(s *slot, at uint64) {
	if q.n == len(q.ring) {
		ring := make([]queued, max(64, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = q.ring[(q.first+i)%len(q.ring)]
		}
		q.ring, q.first = ring, 0
	}
	q.ring[(q.first+q.n)&(len(q.ring)-1)] = queued{s, at}
	q.n++
}

func (q *queue) front() *slot {
	if q.n == 0 {
		return nil
	}
	return q.ring[q.first].slot
}

func (q *queue) pop() {
	q.ring[q.first].slot = nil
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.n--
}
