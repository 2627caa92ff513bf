package ringchange

import (
	"bytes"
	"math"
	"time"

	"example.com/memcached-operator/drainer/wire"
)

const (
	// WaitStep is how long a task first waits for another one's lease before it looks again. A task that has
	// waited for long waits a quarter of that time more, and at most longestWait.
	WaitStep    = time.Millisecond
	longestWait = 32 * time.Millisecond
	// waitLimit bounds all waits: the lease of a holder that died has expired by then.
	waitLimit = 2 * LeaseSeconds * time.Second
	// leaseLimit is how long a task may rely on its lease. memcached keeps the lease for at least one more
	// second.
	leaseLimit = (LeaseSeconds - 2) * time.Second
	// moveLimit bounds the age of a lease when an item is moved in its place. A flush of all members is sent
	// twice, and relies on this bound.
	moveLimit = 250 * time.Millisecond
)

// Task is a request for a key with two owners, or a move of one.
type Task struct {
	op    Op
	mover *Mover // of a move
	step  Step
	// beforePeek is the step before a Peek. If its item is no placeholder, its answer is the client's. said
	// is that answer, and looked is the item's CAS value, math.MaxUint64 if the answer has none.
	beforePeek Step
	looked     uint64
	said       []byte
	request    Request
	// answer is the answer to the present step, and kept the client's answer so far.
	answer, kept []byte
	text         int // size of the request, in bytes
	found        bool
	failed       bool
	// why is the reason of a failed step, if an owner has given one.
	why     string
	fetched Fetched
	// leased, waits and due are times: when the lease was asked for, when the first wait began, and when to
	// go on.
	leased, waits, due int64
}

// OfRead returns the task of one key of a classic read. The key must not change.
func OfRead(r *wire.Request, key []byte, state State, without Rules) Task {
	t := Task{request: Request{Request: wire.Request{Verb: r.Verb, Exptime: r.Exptime}, Single: key}}
	return t.of(state, without)
}

// OfText returns the task of another request. Its text, with the data block if it has one, must not change.
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
	t.op.Repeatable = Repeatable(&t.request.Request)
	return t
}

// Move returns the task that moves this task's key.
func (t *Task) Move(without Rules) Task {
	key := bytes.Clone(t.request.Single)
	request := Request{Request: wire.Request{Verb: wire.MetaGet}, Single: key}
	if key == nil {
		request.Key, request.Binary = bytes.Clone(t.request.Key), t.request.Binary
	}
	mover := NewMover(without)
	return Task{request: request, mover: &mover}
}

// Moves tells whether the task is a move and not a client's request.
func (t *Task) Moves() bool { return t.mover != nil }

// Verb returns the request's verb, and its key if it is one of a classic read.
func (t *Task) Verb() (verb wire.Verb, single []byte) { return t.request.Verb, t.request.Single }

// Asks returns the verb that the answer to the present step fits: the step's own command, or the client's.
func (t *Task) Asks() wire.Verb {
	switch t.step.Action {
	case Look, Peek, PeekAsked, Fetch:
		return wire.MetaGet
	case Lease:
		return wire.MetaArithmetic
	}
	return t.request.Verb
}

// Size returns how many bytes the task has in memory.
func (t *Task) Size() int {
	return t.text + len(t.answer) + len(t.kept) + len(t.said) + len(t.fetched.Value)
}

// Start returns the first step. A step with an owner is sent to that owner (Append), or reported with
// Unreachable. A Wait is followed by Waited, when the task is Due. The last step is Done.
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

// Unreachable returns the step after one whose owner can't be asked.
func (t *Task) Unreachable() Step { return t.next(Result{Code: Failed}) }

// Kind returns the kind of the answer to the present step.
func (t *Task) Kind() wire.Kind { return t.request.Kind(t.step) }

// Append appends the command of the present step. keepsCAS means that the owner accepts the CAS value for an
// item. The lifetime of a copied item begins at the second unix.
func (t *Task) Append(dst []byte, keepsCAS bool, now, unix int64) []byte {
	switch t.step.Action {
	case Lease:
		t.leased = now
	case Copy:
		return t.request.AppendCopy(dst, &t.fetched, t.step, keepsCAS, unix)
	}
	return t.request.Append(dst, t.step)
}

// Take appends a part of the answer.
func (t *Task) Take(b []byte) { t.answer = append(t.answer, b...) }

// Fail is called if there is no answer. why is the client's error, if one is known.
func (t *Task) Fail(why string) {
	if t.failed = true; why != "" {
		t.why = why
	}
}

// Heard returns the step after one that an owner has answered in full, or can't answer.
func (t *Task) Heard(now int64) Step {
	result := Result{Code: Failed}
	if !t.failed {
		var said []byte
		result, said = t.request.Result(t.step, t.answer)
		if result.Code != Occupied {
			t.keep(said, result.Code)
		}
		if result.Code == Occupied {
			t.beforePeek, t.looked, t.said = t.step, result.CAS, append(t.said[:0], said...)
			t.answer = t.answer[:0]
			return t.take(t.step.Peek())
		}
	}
	if t.step.Action == PeekAsked {
		switch {
		case result.Code == Found && !t.peeked(result.CAS):
			t.answer = t.answer[:0]
			return t.take(t.beforePeek) // the answer was about another item, perhaps a placeholder
		case result.Code == Found && len(t.said) > 0:
			t.keep(t.said, Found)
		case t.beforePeek.Action == Guarded && result.Code == Leased:
			result.Code = Changed
		}
	}
	if t.step.Action == Fetch && result.Code == Found {
		var ok bool
		if t.fetched, ok = t.request.Fetched(t.answer); !ok || t.tooOld(now) {
			result.Code = Absent
		}
		t.answer = nil // the fetched value is a part of this memory
	}
	t.answer = t.answer[:0]
	return t.next(result)
}

// peeked tells whether a Peek has found the item of the answer before it. The answer to a get has no CAS
// value, but had a placeholder's value: if the item has the same value, a client has stored it.
func (t *Task) peeked(cas uint64) bool {
	if t.looked != math.MaxUint64 {
		return cas == t.looked
	}
	var a wire.Answer
	return a.Parse(wire.MetaValue, t.answer) && isLeaseValue(&a, t.answer)
}

// tooOld tells whether a move's lease is older than moveLimit.
func (t *Task) tooOld(now int64) bool {
	return t.mover != nil && t.leased > 0 && now-t.leased > int64(moveLimit)
}

// keep keeps an answer for the client, unless a better one comes.
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

// Wait makes the task wait for another task.
func (t *Task) Wait(now int64) {
	if t.waits == 0 {
		t.waits = now
	}
	t.due = now + min(max((now-t.waits)/4, int64(WaitStep)), int64(longestWait))
}

// Due tells whether the wait is over.
func (t *Task) Due(now int64) bool { return now >= t.due }

// Waited returns the step after a wait. ended is the time after which all requests that had begun before the
// first wait have ended.
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

// Alone tells whether only the new owner is asked: the old one may end meanwhile.
func (t *Task) Alone() bool { return t.op.Alone() }

// Pulls tells whether the key is to be moved, because it was read at its old owner.
func (t *Task) Pulls() bool { return t.op.Pull }

// Answer returns the client's answer when the task is done; nil for an error: then why has details, if an
// owner has given some. reconnected means that an owner may have lost the state that it had when the task
// began.
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
