package ringchange

import (
	"bytes"
	"time"

	"example.com/memcached-operator/drainer/router/wire"
)

const (
	// WaitStep is how long a task waits for another one's lease at first, before it looks again. One
	// that has waited for long waits for a quarter more, longestWait at most.
	WaitStep    = time.Millisecond
	longestWait = 32 * time.Millisecond
	// waitLimit bounds that: the lease of one that died has expired.
	waitLimit = 2 * LeaseSeconds * time.Second
	// leaseLimit is how long a task may rely on its lease, which memcached keeps for a second
	// more at least.
	leaseLimit = (LeaseSeconds - 2) * time.Second
	// moveLimit is how old a lease may be at most when an item is moved in its place. A flush of all
	// members is sent twice, and relies on it.
	moveLimit = 250 * time.Millisecond
)

// Task is a request for a key with two owners, or a move of one.
type Task struct {
	op      Op
	mover   *Mover // of a move
	step    Step
	request Request
	// answer to the present step, and what the client would be told so far.
	answer, kept []byte
	text         int // of the request, in bytes
	found        bool
	failed       bool
	// why a step has failed, if an owner has said so.
	why     string
	fetched Fetched
	// leased, waits and due are times: when the lease was asked for, when the first wait began, and
	// when to go on.
	leased, waits, due int64
}

// OfRead is the task of one key of a classic read. The key has to stay as it is.
func OfRead(r *wire.Request, key []byte, state State, without Rules) Task {
	t := Task{request: Request{Request: wire.Request{Verb: r.Verb, Exptime: r.Exptime}, Single: key}}
	return t.of(state, without)
}

// OfText is the task of another request. Its text, with a data block if it has one, has to stay as it
// is.
func OfText(text []byte, data bool, state State, without Rules) Task {
	t := Task{text: cap(text)}
	n := t.request.Parse(text)
	if data {
		t.request.Value = text[n:]
	}
	return t.of(state, without)
}

func (t Task) of(state State, without Rules) Task {
	class, _ := ClassOf(&t.request.Request)
	t.op = NewOp(class, state, without)
	t.op.Repeatable = Touches(&t.request.Request)
	return t
}

// Move is the task that moves this one's key.
func (t *Task) Move(without Rules) Task {
	key := bytes.Clone(t.request.Single)
	request := Request{Request: wire.Request{Verb: wire.MetaGet}, Single: key}
	if key == nil {
		request.Key, request.Binary = bytes.Clone(t.request.Key), t.request.Binary
	}
	mover := NewMover(without)
	return Task{request: request, mover: &mover}
}

// Moves tells a move from a client's request.
func (t *Task) Moves() bool { return t.mover != nil }

// Verb of the request, and its key, if it is one of a classic read.
func (t *Task) Verb() (verb wire.Verb, single []byte) { return t.request.Verb, t.request.Single }

// Size is what the task keeps, in bytes.
func (t *Task) Size() int { return t.text + len(t.answer) + len(t.kept) + len(t.fetched.Value) }

// Start is the first step. Those with an owner are to be sent to it (Append), or to be told that
// it can't be reached; Wait is to be followed by Waited, when the task is Due; then the task is Done.
func (t *Task) Start() Step {
	if t.mover != nil {
		return t.take(t.mover.Start())
	}
	return t.take(t.op.Start())
}

func (t *Task) next(r Result) Step {
	if t.mover != nil {
		return t.take(t.mover.Next(r))
	}
	return t.take(t.op.Next(r))
}

func (t *Task) take(s Step) Step {
	t.step = s
	return s
}

// Unreachable is the step after one whose owner can't be asked.
func (t *Task) Unreachable() Step { return t.next(Result{Code: Failed}) }

// Kind of the answer to the present step.
func (t *Task) Kind() wire.Kind { return t.request.Kind(t.step) }

// Append what an owner is told in the present step. keepsCAS: it can be told the CAS value of an
// item. An item is copied with a lifetime that begins at the second unix.
func (t *Task) Append(dst []byte, keepsCAS bool, now, unix int64) []byte {
	switch t.step.Action {
	case Lease:
		t.leased = now
	case Copy:
		return t.request.AppendCopy(dst, &t.fetched, t.step, keepsCAS, unix)
	}
	return t.request.Append(dst, t.step)
}

// Take a part of the answer.
func (t *Task) Take(b []byte) { t.answer = append(t.answer, b...) }

// Fail is called if there is no answer. why is what the client is told, if that is known.
func (t *Task) Fail(why string) {
	if t.failed = true; why != "" {
		t.why = why
	}
}

// Heard is the step after one that an owner has answered in full, or can't.
func (t *Task) Heard(now int64) Step {
	result := Result{Code: Failed}
	if !t.failed {
		var said []byte
		result, said = t.request.Result(t.step, t.answer)
		t.keep(said, result.Code)
	}
	if t.step.Action == Fetch && result.Code == Found {
		var ok bool
		if t.fetched, ok = t.request.Fetched(t.answer); !ok || t.tooOld(now) {
			result.Code = Absent
		}
		t.answer = nil // it is a part of what was fetched
	}
	t.answer = t.answer[:0]
	return t.next(result)
}

// tooOld tells whether a move's lease is older than moveLimit.
func (t *Task) tooOld(now int64) bool {
	return t.mover != nil && t.leased > 0 && now-t.leased > int64(moveLimit)
}

// keep what the client is told, if nothing better comes.
func (t *Task) keep(said []byte, code Code) {
	if code == Failed && said != nil {
		t.why = string(said)
		return
	}
	better := code == Found || code == Refused
	if said == nil || t.found && !better {
		return
	}
	t.kept, t.found = append(t.kept[:0], said...), better
}

// Wait for what another task does.
func (t *Task) Wait(now int64) {
	if t.waits == 0 {
		t.waits = now
	}
	t.due = now + min(max((now-t.waits)/4, int64(WaitStep)), int64(longestWait))
}

// Due tells whether the wait is over.
func (t *Task) Due(now int64) bool { return now >= t.due }

// Waited is the step after a wait. What was under way when the first one began has ended after that
// time.
func (t *Task) Waited(now int64, ended time.Duration) Step {
	result := Result{Code: Absent}
	switch waited := now - t.waits; {
	case waited > int64(waitLimit):
		result.Code = Failed
	case waited > int64(ended):
		result.Code = Found
	}
	return t.next(result)
}

// Alone tells whether the new owner alone is asked: the old one may end meanwhile.
func (t *Task) Alone() bool { return t.op.Alone() }

// Pulls tells whether the key is to be moved: it was read at its old owner.
func (t *Task) Pulls() bool { return t.op.Pull }

// Answer for the client when the task is done; nil if it is an error: then why says more, if an owner
// has said so. reconnected: an owner may have lost what it had when the task began.
func (t *Task) Answer(now int64, reconnected bool) (answer []byte, why string) {
	outcome := t.op.Outcome()
	if t.op.Writes() && (reconnected || t.op.Holds() && now-t.leased > int64(leaseLimit)) {
		outcome = Unknown
	}
	switch {
	case outcome == Unknown:
		return nil, t.why
	case outcome == Answered && t.kept != nil:
		return t.kept, ""
	case outcome == Answered:
		return t.request.Says(Missed), ""
	}
	return t.request.Says(outcome), ""
}
