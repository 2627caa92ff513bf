package router

import (
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/router/wire"
)

// slot is one request to members, and the place of its answer among the client's.
type slot struct {
	// next in the client's order, or in the loop's list of free ones.
	next   *slot
	client *client // nil when it has gone
	verb   wire.Verb
	kind   wire.Kind
	// key as the member was sent it, of a classic read; of a meta command, if it has an echo.
	key []byte
	// echo of the key.
	echo wire.Echo
	// began in nanoseconds of the loop's clock.
	began int64
	// held is what is answered and can't be sent yet: earlier requests aren't answered.
	held []byte
	// size of what was emitted, in bytes.
	size int
	// parts is the number of members that are still to answer a request to all of them.
	parts int
	// repeat is a request to all members that is sent them twice; nil if that isn't to come.
	repeat *repeatedRequest
	// outcome of the answer, once its first line is known.
	outcome wire.Code

	lenient bool // a read that fails is answered as a miss
	missed  bool // so it was
	quiet   bool // the request was: some answers are hidden
	silent  bool // all are: the request is the router's own
	more    bool // more keys of the same read follow: no END
	hidden  bool // this answer is not for the client
	started bool // some of it has been sent
	done    bool
	pending bool // some member is still to answer it

	// job whose step this is; it has no client then.
	job *job
	// epoch is the table under which it began; that table counts it until it is answered.
	epoch *fence.Epoch
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

// emit passes bytes of the answer on.
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

// line passes the line of an answer on.
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

// fail answers with an error of ours.
func (s *slot) fail(answer string) {
	c := s.client
	switch {
	case s.job != nil:
		s.job.Fail("")
	case c == nil:
	case s.started:
		// A part of a value has been sent: nothing can be said any more.
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

// miss answers a read that has failed as if there were no item: an error would end the answer to all
// keys of the read, and libraries then take the router for dead.
func (s *slot) miss() {
	s.outcome, s.missed = wire.Failure, true
	switch s.hidden = s.more; {
	case s.more:
	case s.kind == wire.Values:
		s.emit([]byte(wire.AnswerEnd))
	default:
		s.emit([]byte(wire.AnswerMiss))
	}
}

// part is the answer of one of several members. The first error is that of all.
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

// queue is a ring of slots: those that a member has been sent, in order.
type queue struct {
	ring  []queued
	first int
	n     int
}

type queued struct {
	*slot
	// at is how many bytes the member had been sent, or was to be sent, before this request.
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
