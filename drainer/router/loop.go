package router

import (
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/wire"
)

// loop serves a part of the clients, over its own connections to the members. A loop carries out a request
// without another goroutine.
type loop struct {
	router *Router
	poller *eventloop.Poller
	// input is the buffer for all reads.
	input   []byte
	buffers eventloop.Buffers
	free    *slot
	spare   int // the number of free slots
	request wire.Request
	// now is when the round began, in nanoseconds of a clock that begins with the router.
	now   int64
	began time.Time

	members struct {
		all     []*member
		dirty   []*member
		leaving []*member // the table no longer names them
	}
	places eventloop.Places
	// table is for new requests, and the members are those of its rings. epochs are the epochs with
	// unanswered requests, and the table's own.
	table    *Table
	next     *Table // waits for connections to its members
	offered  int64  // when next was offered, in the loop's clock
	old, new []*member
	epochs   fence.Epochs
	// refusesMoved means that the loop refuses keys that may have moved, refusesAll that it refuses all keys.
	// refuser is then their owner.
	refusesMoved, refusesAll bool
	refuser                  *member
	// waiting are the jobs that wait for another request's lease.
	waiting []*job
	// repeated are the requests that are sent to all members again when it is time.
	repeated []*slot
	pulls    int
	clients  []*client
	sweep    int64 // when to look at the clients next, in the loop's clock
	dirty    []*client
	queued   []*client
	// held is how many bytes are kept for clients and members, and coming how many more will be for blocks
	// whose lines were read. maxMemory is the configuration's.
	held, coming, maxMemory int
	// carried is the loop's share of the memory of the goroutines that carry connections, which is a part of
	// held.
	carried int
	// ends is how connections are closed, because the router ends; nil before.
	ends   *ends
	counts status.Counts
	sketch status.Sketch
	faded  int64         // when the counts were last halved, in the loop's clock
	odd    status.Seldom // slow and failed requests

	published status.Board
}

// fadePeriod is how often the counts of keys are halved.
const fadePeriod = 20 * time.Second

const (
	// readSize is how many bytes a loop reads at once. All its connections share the buffer.
	readSize = 128 << 10
	// tick is how often a loop checks for time-outs.
	tick = 100 * time.Millisecond
	// mostSpare is how many free slots are kept, for requests to come.
	mostSpare = 16 << 10
	// shortestSleep is how long a round may take before the loop assumes that it was paused.
	shortestSleep = 2 * time.Second
)

func newLoop(r *Router) (*loop, error) {
	p, err := eventloop.New()
	if err != nil {
		return nil, err
	}
	l := &loop{router: r, poller: p, input: make([]byte, readSize), began: r.began, maxMemory: r.config.MaxMemory}
	l.refuser = &member{refusal: answerLate}
	return l, nil
}

// run runs until a posted function ends the loop.
func (l *loop) run() {
	list := eventloop.NewList()
	defer l.poller.End()
	for next := l.now; !l.poller.Ended(); {
		l.poller.Wait(list, l.patience(), l.clock)
		l.poller.RunPosted()
		l.goOn()
		l.repeat()
		l.flush()
		l.poller.CloseRemoved()
		if l.now >= next {
			next = l.now + int64(tick)
			l.check()
		}
	}
}

// patience returns how long a round waits for a socket.
func (l *loop) patience() time.Duration {
	if len(l.waiting) > 0 {
		return ringchange.WaitStep
	}
	return tick
}

func (l *loop) clock() {
	before := l.now
	l.now = int64(time.Since(l.began))
	if before > 0 && l.now-before > int64(max(l.router.config.LeftBehind/2, shortestSleep)) {
		l.router.fence.StoodStill()
		l.judge()
	}
}

// flush sends the output of the round: first to members, so that they can begin. A client that goes on may
// add more.
func (l *loop) flush() {
	for len(l.members.dirty)+len(l.dirty)+len(l.queued) > 0 {
		for _, m := range l.members.dirty {
			m.dirty = false
			if m.up && !m.write() {
				m.fail("it does not take requests")
			}
			if len(m.waiting) > 0 && !m.full() {
				m.resume()
			}
		}
		l.members.dirty = l.members.dirty[:0]
		dirty := l.dirty
		l.dirty = nil
		for _, c := range dirty {
			c.dirty = false
			if !c.closed {
				c.flushed()
			}
		}
		if l.dirty == nil {
			l.dirty = dirty[:0]
		}
		queued := l.queued
		l.queued = nil
		for _, c := range queued {
			c.queued = false
			c.resume()
		}
		if l.queued == nil {
			l.queued = queued[:0]
		}
	}
}

// resumeLater lets a client go on when the round is over.
func (l *loop) resumeLater(c *client) {
	if !c.queued {
		c.queued = true
		l.queued = append(l.queued, c)
	}
}

// check looks for clients and members that have been silent for too long.
func (l *loop) check() {
	config := &l.router.config
	for _, m := range l.members.all {
		m.check(config.MemberTimeout)
	}
	for _, m := range l.members.leaving {
		m.check(config.MemberTimeout)
	}
	l.leave()
	l.adopt()
	l.judge()
	l.weigh()
	l.closeNext()
	if l.now >= l.sweep {
		l.sweep = l.now + int64(5*tick)
		for i := len(l.clients) - 1; i >= 0; i-- {
			if c := l.clients[i]; c.overdue(config) {
				c.gone()
			}
		}
	}
	l.flush()
	l.poller.CloseRemoved()
	l.publish()
}

// publish updates the loop's board.
func (l *loop) publish() {
	l.published.Update(func(p *status.Loop) {
		p.Counts, p.Held, p.Unanswered = l.counts, l.held, 0
		p.Hot = l.sketch
		if p.Serves = l.table != nil; p.Serves {
			p.Acknowledged, p.WaitsFor = l.acknowledged()
		}
		p.Connections = map[string]status.Connection{}
		for _, m := range l.members.all {
			p.Connections[m.address] = status.Connection{Why: m.down, Traffic: m.traffic}
			p.Unanswered += m.unanswered.n
		}
	})
	if l.now-l.faded > int64(fadePeriod) {
		l.faded = l.now
		l.sketch.Fade()
	}
}

// slot returns an empty slot.
func (l *loop) slot() *slot {
	s := l.free
	if s == nil {
		s = &slot{}
	} else {
		l.free = s.next
		l.spare--
	}
	*s = slot{key: s.key[:0], absent: s.absent[:0], asked: s.asked[:0], request: s.request[:0], began: l.now}
	return s
}

func (l *loop) release(s *slot) {
	s.client, s.job = nil, nil
	if l.spare == mostSpare {
		return
	}
	s.next = l.free
	l.free = s
	l.spare++
}

// answered is called when a member has answered s in full, or can't answer.
func (l *loop) answered(s *slot) {
	if s.parts > 0 {
		if s.parts--; s.parts > 0 || l.repeats(s) {
			return
		}
	}
	if s.job != nil {
		j := s.job
		l.release(s)
		j.heard()
		return
	}
	state := l.table.State
	if s.epoch != nil {
		state = s.epoch.State
	}
	s.leave()
	s.pending, s.done = false, true
	l.counts.Count(state, s.verb, s.outcome, s.size, l.now-s.began)
	if s.missed {
		l.counts.Missed++
	}
	if slow := int64(l.router.config.Slow); slow > 0 && (s.outcome == wire.Failure || l.now-s.began >= slow) {
		l.logOdd(s)
	}
	c := s.client
	if c == nil {
		l.release(s)
		return
	}
	if c.head == s {
		c.advance()
	}
	c.goOn()
}

// logOdd logs a slow or failed request, without its key, which may be a secret.
func (l *loop) logOdd(s *slot) {
	more, say := l.odd.Says(l.now)
	if !say {
		return
	}
	what := "took long"
	if s.outcome == wire.Failure {
		what = "failed"
	}
	l.router.config.Logf("a %s %s, after %v; %d more were slow or failed since the last one", s.verb, what, time.Duration(l.now-s.began).Round(time.Microsecond), more)
}

// accept adopts a client's connection.
func (l *loop) accept(fd int, carried bool) {
	c := &client{used: l.now, at: len(l.clients), average: 8 * firstAverage, carried: carried}
	c.login.wanted = l.router.config.Logins != nil
	if err := c.open(l, fd, c); err != nil {
		_ = unix.Close(fd)
		l.disconnected(c)
		return
	}
	l.clients = append(l.clients, c)
	if l.ends != nil {
		l.ends.all++ // it takes no other client's turn
	}
}

// forget removes a client that is closed.
func (l *loop) forget(c *client) {
	last := l.clients[len(l.clients)-1]
	l.clients[c.at] = last
	last.at = c.at
	l.clients = l.clients[:len(l.clients)-1]
	l.disconnected(c)
}

// disconnected counts a closed client, unless goroutines carry its connection: they count it when they have
// closed it.
func (l *loop) disconnected(c *client) {
	if !c.carried {
		l.router.clients.Gone()
	}
}
