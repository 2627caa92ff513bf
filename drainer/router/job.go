package router

import (
	"bytes"
	"time"

	"example.com/memcached-operator/drainer/router/change"
	"example.com/memcached-operator/drainer/router/command"
	"example.com/memcached-operator/drainer/router/wire"
)

const (
	// leaseLimit is how long a job may rely on its lease, which memcached keeps for a second
	// more at least.
	leaseLimit = (command.LeaseSeconds - 2) * time.Second
	// waitStep is how long a job waits for another one's lease, before it looks again.
	waitStep = time.Millisecond
	// waitLimit bounds that: the lease of one that died has expired.
	waitLimit = 2 * command.LeaseSeconds * time.Second
	// clientJobs of a client at most.
	clientJobs = 16
	// pulls of a loop at most: keys that it moves because they were read.
	pulls = 64
)

// job is a request for a key with two owners, or a move of one. Package change says what
// is done, package command how it is said.
type job struct {
	loop    *loop
	op      change.Op
	mover   *change.Mover // of a move
	step    change.Step
	request command.Request
	slot    *slot // the client's, or a move's own
	owners  [2]*member
	// connections of the owners when it began.
	connections [2]int
	// answer to the present step, and what the client would be told so far.
	answer, kept []byte
	// text of the request, and what is counted of all, in bytes (loop.held).
	text, counted int
	found         bool
	failed        bool
	// why a step has failed, if an owner has said so.
	why     string
	fetched command.Fetched
	// leased, waits and due are times of the loop's clock: when the lease was asked for, when
	// the first wait began, and when to go on.
	leased, waits, due int64
}

// moving begins a request whose key has two owners. single is the key of a classic read.
func (c *client) moving(r *wire.Request, s *slot, single, data []byte, owner, old *member) {
	l := c.loop
	j := &job{loop: l, slot: s, owners: [2]*member{change.Old: old, change.New: owner}}
	if single != nil {
		j.request.Request = wire.Request{Verb: r.Verb, Exptime: r.Exptime}
		j.request.Single = s.key
	} else {
		text := c.body // if there is one, it is complete, and the job's from now on
		if text == nil {
			text = append(append(bytes.Clone(r.Line), "\r\n"...), data...)
		}
		j.text = cap(text)
		n := j.request.Parse(text)
		if len(data) > 0 {
			j.request.Value = text[n:]
		}
	}
	class, _ := command.ClassOf(&j.request.Request)
	j.op = change.NewOp(class, l.table.State, l.table.Without())
	j.count()
	l.enter(s)
	s.pending = true
	c.jobs++
	if l.late {
		j.finish([]byte(answerLate))
		return
	}
	j.begin(j.op.Start())
}

// pull moves a key that was read at its old owner.
func (l *loop) pull(j *job) {
	if l.pulls >= pulls || l.held > l.maxMemory/2 {
		return
	}
	l.pulls++
	key := bytes.Clone(j.request.Single)
	request := command.Request{Request: wire.Request{Verb: wire.MetaGet}, Single: key}
	if key == nil {
		request.Key, request.Binary = bytes.Clone(j.request.Key), j.request.Binary
	}
	mover := change.NewMover(l.table.Without())
	m := &job{loop: l, owners: j.owners, request: request, mover: &mover, slot: l.slot()}
	m.slot.verb = wire.MetaGet
	l.enter(m.slot)
	m.begin(mover.Start())
}

func (j *job) begin(first change.Step) {
	for i, m := range j.owners {
		j.connections[i] = m.connections
	}
	j.run(first)
}

// run carries out steps until an owner has to answer.
func (j *job) run(step change.Step) {
	for {
		j.step = step
		switch step.Action {
		case change.Done:
			j.done()
			return
		case change.Wait:
			j.wait()
			return
		}
		if m := j.owners[step.Place]; m.up && !j.late() { // also after a wait
			j.ask(m)
			return
		}
		step = j.next(change.Result{Code: change.Failed})
	}
}

func (j *job) next(r change.Result) change.Step {
	if j.mover != nil {
		return j.mover.Next(r)
	}
	return j.op.Next(r)
}

// ask an owner.
func (j *job) ask(m *member) {
	s := j.loop.slot()
	s.job, s.verb, s.kind = j, j.request.Verb, j.request.Kind(j.step)
	s.key = append(s.key[:0], j.request.Single...)
	m.request(s)
	if j.step.Action == change.Lease {
		j.leased = j.loop.now
	}
	if j.step.Action == change.Copy {
		m.out = j.request.AppendCopy(m.out, &j.fetched, j.step, m.keepsCAS, time.Now().Unix())
		return
	}
	m.out = j.request.Append(m.out, j.step)
}

// wait for what another job does.
func (j *job) wait() {
	l := j.loop
	if j.waits == 0 {
		j.waits = l.now
	}
	j.due = l.now + int64(waitStep)
	l.waiting = append(l.waiting, j)
}

// goOn with the jobs that have waited.
func (l *loop) goOn() {
	if len(l.waiting) == 0 {
		return
	}
	waiting := l.waiting
	l.waiting = nil
	for _, j := range waiting {
		if l.now < j.due {
			l.waiting = append(l.waiting, j)
			continue
		}
		result := change.Result{Code: change.Absent}
		switch waited := l.now - j.waits; {
		case waited > int64(waitLimit):
			result.Code = change.Failed
		case waited > 2*int64(l.router.config.MemberTimeout):
			result.Code = change.Found
		}
		j.run(j.next(result))
	}
}

// heard: an owner has answered the step in full, or can't.
func (j *job) heard() {
	result := change.Result{Code: change.Failed}
	if !j.failed {
		var said []byte
		result, said = j.request.Result(j.step, j.answer)
		j.keep(said, result.Code)
	}
	if j.step.Action == change.Fetch && result.Code == change.Found {
		var ok bool
		if j.fetched, ok = j.request.Fetched(j.answer); !ok || j.tooOld() {
			result.Code = change.Absent
		}
		j.answer = nil // it is a part of what was fetched
	}
	j.answer = j.answer[:0]
	j.count()
	j.run(j.next(result))
}

// keep what the client is told, if nothing better comes.
func (j *job) keep(said []byte, code change.Code) {
	if code == change.Failed && said != nil {
		j.why = string(said)
		return
	}
	better := code == change.Found || code == change.Refused
	if said == nil || j.found && !better {
		return
	}
	j.kept, j.found = append(j.kept[:0], said...), better
}

// done: the client can be answered.
func (j *job) done() {
	if j.mover != nil {
		j.forget()
		j.loop.pulls--
		j.slot.leave()
		j.loop.release(j.slot)
		return
	}
	outcome := j.op.Outcome()
	if j.op.Writes() && (j.reconnected() || j.op.Holds() && j.loop.now-j.leased > int64(leaseLimit)) {
		outcome = change.Unknown
	}
	if j.op.Pull {
		j.loop.pull(j)
	}
	switch {
	case outcome == change.Unknown:
		j.finish([]byte(j.unavailable()))
	case outcome == change.Answered && j.kept != nil:
		j.finish(j.kept)
	case outcome == change.Answered:
		j.finish(j.request.Says(change.Missed))
	default:
		j.finish(j.request.Says(outcome))
	}
}

// reconnected: an owner may have lost what it had.
func (j *job) reconnected() bool {
	for i, m := range j.owners {
		if m.connections != j.connections[i] {
			return true
		}
	}
	return false
}

func (j *job) unavailable() string {
	if j.late() {
		return answerLate
	}
	if j.why != "" {
		return j.why
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
	s.line(&a)
	s.emit(answer[len(a.Line):])
	if s.client != nil {
		s.client.jobs--
	}
	j.loop.answered(s)
}
