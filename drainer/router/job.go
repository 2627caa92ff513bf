package router

import (
	"bytes"
	"time"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
)

const (
	// clientJobs bounds a client's jobs.
	clientJobs = 16
	// pulls bounds a loop's moves of keys that were read.
	pulls = 64
)

// job is a task of a loop: a request for a key with two owners, or a move of one.
type job struct {
	ringchange.Task
	loop   *loop
	slot   *slot // the client's, or a move's own
	owners [2]*member
	// connections are those of the owners when the job began.
	connections [2]int
	// counted is how many bytes it keeps, as counted in loop.held.
	counted int
}

// moving begins a request whose key has two owners. single is the key of a classic read.
func (c *client) moving(r *wire.Request, s *slot, single, data []byte, owner, old *member) {
	l := c.loop
	j := &job{loop: l, slot: s, owners: [2]*member{ringchange.Old: old, ringchange.New: owner}}
	state, without := l.table.State, l.table.Without()
	if single != nil {
		j.Task = ringchange.OfRead(r, s.key, state, without)
	} else {
		text := c.body // a body is complete, and belongs to the job from now on
		if text == nil {
			text = append(append(bytes.Clone(r.Line), "\r\n"...), data...)
		}
		j.Task = ringchange.OfText(text, len(data) > 0, state, without)
	}
	j.count()
	l.enter(s)
	s.pending = true
	c.jobs++
	if l.refusesMoved {
		j.finish([]byte(answerLate))
		return
	}
	j.begin()
}

// pull moves a key that was read at its old owner.
func (l *loop) pull(j *job) {
	if l.pulls >= pulls || l.held > l.maxMemory/2 {
		return
	}
	l.pulls++
	m := &job{Task: j.Move(l.table.Without()), loop: l, owners: j.owners, slot: l.slot()}
	m.slot.verb, _ = m.Verb()
	l.enter(m.slot)
	m.begin()
}

func (j *job) begin() {
	for i, m := range j.owners {
		j.connections[i] = m.connections
	}
	j.run(j.Start())
}

// run carries out steps until an owner has to answer.
func (j *job) run(step ringchange.Step) {
	for {
		switch step.Action {
		case ringchange.Done:
			j.done()
			return
		case ringchange.Wait:
			j.Wait(j.loop.now)
			j.loop.waiting = append(j.loop.waiting, j)
			return
		}
		if m := j.owners[step.Place]; m.up && !j.outdated() { // the fence's state may have changed during a wait
			j.ask(m)
			return
		}
		step = j.Unreachable()
	}
}

// ask sends the step's command to an owner.
func (j *job) ask(m *member) {
	s := j.loop.slot()
	_, single := j.Verb()
	s.job, s.verb, s.kind, s.key = j, j.Asks(), j.Kind(), append(s.key[:0], single...)
	m.request(s)
	m.out = j.Append(m.out, m.keepsCAS, j.loop.now, time.Now().Unix())
}

// goOn continues the jobs whose wait is over.
func (l *loop) goOn() {
	if len(l.waiting) == 0 {
		return
	}
	waiting := l.waiting
	l.waiting = nil
	for _, j := range waiting {
		if !j.Due(l.now) {
			l.waiting = append(l.waiting, j)
			continue
		}
		j.run(j.Waited(l.now, 2*l.router.config.MemberTimeout))
	}
}

// heard is called when an owner has answered the step in full, or can't answer.
func (j *job) heard() {
	next := j.Heard(j.loop.now)
	j.count()
	j.run(next)
}

// done is called when the client can be answered.
func (j *job) done() {
	if j.Moves() {
		j.forget()
		j.loop.pulls--
		j.slot.leave()
		j.loop.release(j.slot)
		return
	}
	if j.Pulls() && !j.loop.table.Shared { // without leases, two moves of a key would take each other's copies back
		j.loop.pull(j)
	}
	answer, why := j.Answer(j.loop.now, j.reconnected())
	if answer == nil {
		answer = []byte(j.unavailable(why))
	}
	j.finish(answer)
}

// reconnected tells whether an owner may have lost its items, because it was connected again.
func (j *job) reconnected() bool {
	for i, m := range j.owners {
		if m.connections != j.connections[i] && (i == int(ringchange.New) || !j.Alone()) {
			return true
		}
	}
	return false
}

// unavailable returns the error if an owner has not answered. why is the owner's reason, if there is one.
func (j *job) unavailable(why string) string {
	if j.outdated() {
		return answerLate
	}
	if why != "" {
		return why
	}
	for _, m := range j.owners {
		if !m.up {
			return m.unavailable()
		}
	}
	return "SERVER_ERROR the key could not be asked for while its owner changes\r\n"
}

// finish answers the client.
func (j *job) finish(answer []byte) {
	j.forget()
	s := j.slot
	var a wire.Answer
	if a.Parse(wire.KindOf(s.verb), answer) {
		s.begin(&a)
	}
	if s.more && a.Code == wire.Value {
		answer = bytes.TrimSuffix(answer, []byte(wire.AnswerEnd))
	}
	if a.Code == wire.Failure && s.lenient {
		s.miss()
	} else {
		s.line(&a)
		s.emit(answer[len(a.Line):])
	}
	if s.client != nil {
		s.client.jobs--
	}
	j.loop.answered(s)
}
