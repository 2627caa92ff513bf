// Package ringchange has the steps of one key whose owner changes: which command goes to which of its two
// owners, and when the client is answered. Routers take these steps for a client's request, and routers and
// movers to move the key. The package is pure: the caller sends the commands, and passes on the answers.
//
// An Op is a request and a Mover a move, as steps; TestARingChangeShowsNoOldValueAndNoMiss explores them. A
// Request knows the bytes of a step in memcached's text protocol, and what an owner's answer means. A Task
// has both, and is given answers and the time, in nanoseconds of any clock.
//
// All routers of a cluster go through the same states, in order. No router enters a state before all are in
// the previous one, and have answered all requests that began earlier than that. So two routers are in the
// same state, or in adjacent ones.
//
// Two rules make this safe. First, a write leaves nothing at the other owner that a router in an adjacent
// state could take for the key's value. Second, a request or mover that moves an item, makes an item that was
// not there, or, from Settle on, changes an item at its old owner, first takes the lease of its key: a
// placeholder at the new owner. Only the lease's holder, or a set, whose value is newer than all others,
// replaces the placeholder or deletes it. Reads treat it as a miss; all other requests that need the place
// wait.
package ringchange

import "example.com/memcached-operator/drainer/contract"

// State of a ring change. Package contract says what routers do in each.
type State = contract.RingState

// The states, in short.
const (
	Stable  = contract.RingStable
	Prepare = contract.RingPrepare
	Settle  = contract.RingSettle
	Move    = contract.RingMove
	Finish  = contract.RingFinish
)

// Class of a request says how the request may change an item.
type Class uint8

const (
	// Read changes nothing.
	Read Class = iota
	// Set makes an item, whether or not there is one.
	Set
	// Delete deletes an item, whatever it is.
	Delete
	// Update changes an existing item: incr, append, replace, cas, touch.
	Update
	// Create makes an item if there is none: add.
	Create
	// Upsert changes an item, or makes one: incr with an initial value.
	Upsert
)

// Place is one of the two owners of a key.
type Place uint8

const (
	// Old is the key's old owner.
	Old Place = iota
	// New is the key's new owner.
	New
)

// Action is a command to one owner.
type Action uint8

const (
	// Done means that there is no further step. See Op.Outcome.
	Done Action = iota
	// Wait a little, and then go on: another request has the lease, or there are two items, and the set of
	// one of them may not have ended. The result is Found if all requests that had begun before the first
	// Wait have ended.
	Wait
	// Ask is the client's unchanged command.
	Ask
	// AskUpdate is the client's command in a form that can't make an item: an Upsert's first half.
	AskUpdate
	// Make is the client's command in a form that can only make an item: an Upsert's other half.
	Make
	// Guarded is the client's command on condition that the item has this CAS value.
	Guarded
	// Look reads the item and its CAS value.
	Look
	// Lease adds a placeholder.
	Lease
	// Fill replaces the placeholder with this CAS value by the item that the client makes.
	Fill
	// Erase deletes the item.
	Erase
	// EraseIf deletes the item if it has this CAS value.
	EraseIf
	// Fetch reads the item with all of its attributes.
	Fetch
	// Copy replaces the placeholder with this CAS value by the item that was fetched.
	Copy
	// Peek reads the item, with its value, after a step whose answer was Occupied. Neither an Op nor a Mover
	// takes this step: its result is that of the step before.
	Peek
	// PeekAsked is a Peek after the client's own command, which may have touched the item.
	PeekAsked
)

// Step is the next step of an Op or a Mover.
type Step struct {
	Action Action
	Place  Place
	// CAS is for Guarded, Fill, EraseIf and Copy.
	CAS uint64
}

// Peek returns the step after one whose answer was Occupied.
func (s Step) Peek() Step {
	if s.Action == Look {
		return Step{Action: Peek, Place: s.Place}
	}
	return Step{Action: PeekAsked, Place: s.Place}
}

// Code is an owner's answer.
type Code uint8

const (
	// Absent means that there is no item, or none that the command applies to.
	Absent Code = iota
	// Found means that there is an item, or the command was carried out.
	Found
	// Refused means that there is an item, and the command does not apply to it: a cas with another value, an
	// incr of a text, an add. That answer is final.
	Refused
	// Leased means that there is a placeholder.
	Leased
	// Changed means that the item or placeholder has another CAS value.
	Changed
	// Failed means that the owner can't be asked, or has failed.
	Failed
	// Occupied means that there is an item or a placeholder: the answer has no value, so it doesn't say which.
	// The next step is Peek.
	Occupied
)

// Result of a step.
type Result struct {
	Code Code
	// CAS is that of the item or placeholder, after Look, Lease, Make, Fetch and Copy.
	CAS uint64
	// Said means that the owner has answered that the command failed, so it is not carried out later.
	Said bool
}

// Outcome of a request says which answer the client gets.
type Outcome uint8

const (
	// Answered is the answer to the last Ask, AskUpdate, Make, Guarded or Fill that was Found or Refused, or
	// else to the last one that was Absent.
	Answered Outcome = iota
	// Missed is an answer as if there were no item.
	Missed
	// Exists is an answer as if an add had found an item.
	Exists
	// Deleted is an answer as if a delete had found an item.
	Deleted
	// Unknown is an error: the request may have been carried out, or not.
	Unknown
)

// Rules of the protocol. A router follows all of them; tests leave them out, one at a time.
type Rules uint16

// The rules.
const (
	SecondLook  Rules = 1 << iota // a read looks again where it began
	EraseOther                    // a set deletes at the other owner
	EraseBoth                     // a delete goes to both owners
	KeepLease                     // no delete ends a lease: it waits
	UpdateErase                   // an update at the new owner also deletes the old owner's item
	WaitForSet                    // an update in Prepare that finds two items waits
	LookFirst                     // an update looks at the new owner first
	Guard                         // an update at the new owner applies to the item that was seen
	LeaseUpdate                   // from Settle on, an update at the old owner needs the lease
	LeaseCreate                   // a create needs the lease
	LeaseDelete                   // a delete needs the lease, or an item at the new owner
	AskAgain                      // an update that has found nothing and lost its lease begins again
	Undo                          // an item that was made at the old owner without the lease is deleted again
	MoverLease                    // a move needs the lease
	MoverBack                     // a mover that finds nothing to move gives the lease back
)

// Op is one request for a key with two owners.
type Op struct {
	class   Class
	state   State
	without Rules // left out, by tests
	at      stage
	outcome Outcome
	found   bool   // some answer was Found or Refused
	waited  bool   // long enough for every set that had begun
	refused bool   // an owner has answered that it failed: the lease is given back
	full    bool   // the new owner has refused the lease, because it has no memory for it
	lease   uint64 // CAS of our placeholder
	made    uint64 // CAS of the item that we have made at the old owner
	seen    uint64 // CAS of the item seen at the new owner
	other   uint64 // CAS of the item seen at the old owner
	// Pull means that the key was found at its old owner only, and should be moved.
	Pull bool
	// Repeatable means that the request, such as a touch, may be carried out twice.
	Repeatable bool
}

// stage is the step that an Op or a Mover is at.
type stage uint8

const (
	waiting      stage = iota
	first              // of a read, a set or a delete
	second             // of a read
	third              // of a read
	erasing            // at the other owner
	cleaning           // looks for what is to be erased at the new owner
	looking            // at the new owner
	lookingOld         // at the old owner, from Settle on
	guarding           // an update at the new owner
	asking             // an update at the old owner, in Prepare
	lookingAgain       // looks at the new owner a second time
	leasing            // the lease
	holding            // a command to the old owner, with the lease
	filling            // an item in place of the lease
	confirming         // looks whether the key was moved while it was updated without a lease
	releasing          // the lease
	undoing            // what was made
	outdating          // of a mover: an outdated item at the old owner
)

// Leaseless are the rules that can't be followed if direct clients share the cluster: they would read a
// placeholder as a value. So in such a cluster an update may be lost to a move, two adds at the same time may
// both make an item, an item of an add may be deleted by a delete that began before it, and a key that is
// deleted during its move can be read for one more round trip.
const Leaseless = LeaseUpdate | LeaseCreate | LeaseDelete | MoverLease

// NewOp returns a request; its first step is Start's. without are rules that are not followed.
func NewOp(class Class, state State, without Rules) Op {
	return Op{class: class, state: state, without: without}
}

func (o *Op) has(r Rules) bool { return o.without&r == 0 }

// Outcome returns the outcome of a request that is Done.
func (o *Op) Outcome() Outcome { return o.outcome }

// Writes tells whether the request may change anything.
func (o *Op) Writes() bool { return o.class != Read }

// Holds tells whether the request holds a lease, or depends on one that it has held: its outcome is Unknown
// if that lease may have expired in the meantime.
func (o *Op) Holds() bool { return o.lease != 0 }

// primary returns where the state sets keys.
func (o *Op) primary() Place {
	if o.state == Stable || o.state == Prepare {
		return Old
	}
	return New
}

func (o *Op) secondary() Place { return 1 - o.primary() }

// Alone tells whether the state has only one owner.
func (o *Op) Alone() bool { return o.state == Stable || o.state == Finish }

func (o *Op) step(at stage, a Action, p Place, cas uint64) Step {
	o.at = at
	return Step{a, p, cas}
}

func (o *Op) done(outcome Outcome) Step {
	o.outcome = outcome
	return Step{Action: Done}
}

// Start returns the first step.
func (o *Op) Start() Step {
	o.lease, o.made, o.seen, o.other, o.found = 0, 0, 0, 0, false // waited stays
	switch {
	case o.state == Stable:
		return o.step(first, Ask, Old, 0)
	case o.class == Read || o.class == Set:
		return o.step(first, Ask, o.primary(), 0)
	case o.class == Delete && o.state == Finish:
		return o.clean()
	case o.class == Delete && o.has(LeaseDelete):
		return o.step(looking, Look, New, 0)
	case o.class == Delete:
		return o.step(first, Ask, Old, 0)
	}
	return o.begin()
}

// Next returns the step after the one with this result.
func (o *Op) Next(r Result) Step {
	switch {
	case r.Code == Failed && r.Said && o.lease != 0 && (o.at == holding || o.at == filling):
		o.refused = true
		return o.step(releasing, EraseIf, New, o.lease)
	case r.Code == Failed && r.Said && o.at == leasing && o.class == Delete:
		// If there is no memory for a lease, the delete goes on without one, as in a cluster with direct
		// clients. So it may also delete an item of an add that begins meanwhile.
		o.without |= LeaseDelete
		return o.step(first, Ask, Old, 0)
	case r.Code == Failed && r.Said && o.at == leasing && o.class == Update && o.Repeatable:
		o.full = true
		return o.step(asking, AskUpdate, Old, 0)
	case r.Code == Failed:
		return o.done(Unknown)
	case o.state == Stable:
		return o.done(Answered)
	case o.class == Read:
		return o.nextRead(r)
	case o.class == Set:
		return o.nextSet(r)
	case o.class == Delete && o.state != Finish && o.has(LeaseDelete):
		return o.nextLeasedDelete(r)
	case o.class == Delete:
		return o.nextDelete(r)
	}
	return o.nextChange(r)
}

// nextRead asks the owners in turn, and the first one again: the key may have been moved, or set by a router
// in another state, between the two looks.
func (o *Op) nextRead(r Result) Step {
	switch {
	case r.Code == Refused:
		return o.done(Answered)
	case r.Code == Found:
		o.Pull = o.state == Move && o.at == second
		return o.done(Answered)
	case o.at == first && !o.Alone():
		return o.step(second, Ask, o.secondary(), 0)
	case o.at == second && o.has(SecondLook):
		return o.step(third, Ask, o.primary(), 0)
	}
	return o.done(Missed)
}

func (o *Op) nextSet(r Result) Step {
	switch {
	case o.Alone() || !o.has(EraseOther), o.at == first && r.Code == Refused:
	case o.at == first && o.state == Prepare:
		return o.clean()
	case o.at == first:
		return o.step(erasing, Erase, Old, 0)
	case o.at == cleaning || o.at == waiting || o.at == erasing && o.state == Prepare:
		return o.cleaned(r)
	}
	return o.done(Answered)
}

// nextLeasedDelete deletes at the old owner with the lease, or at both owners if there is an item at the new
// one. Between the two deletes no other request can make an item that this would mistake for the one that was
// there.
func (o *Op) nextLeasedDelete(r Result) Step {
	switch o.at {
	case leasing:
		if r.Code == Leased {
			o.lease = r.CAS
			return o.step(holding, Ask, Old, 0)
		}
		return o.step(looking, Look, New, 0)
	case looking:
		switch r.Code {
		case Leased:
			return o.step(waiting, Wait, New, 0)
		case Found:
			o.seen = r.CAS
			return o.step(asking, Ask, Old, 0)
		}
	case holding, asking:
		o.found = o.found || r.Code == Found
		if o.at == holding {
			return o.step(releasing, EraseIf, New, o.lease)
		}
		if o.has(EraseBoth) {
			return o.step(erasing, EraseIf, New, o.seen)
		}
		return o.done(Answered)
	case erasing:
		if r.Code == Found {
			return o.done(Deleted)
		}
	case releasing: // also if a client has set the key meanwhile
		if o.found {
			return o.done(Deleted)
		}
		return o.done(Missed)
	}
	return o.step(leasing, Lease, New, 0)
}

func (o *Op) nextDelete(r Result) Step {
	if o.at != first {
		o.found = o.found || o.at == erasing && r.Code == Found
		return o.cleaned(r)
	}
	o.found = r.Code == Found
	if !o.has(EraseBoth) {
		return o.done(Answered)
	}
	return o.clean()
}

// clean deletes the item at the new owner, but no lease: the lease's holder depends on it, and has looked at
// the old owner, or will. So this waits until the lease is filled or released.
func (o *Op) clean() Step {
	if !o.has(KeepLease) {
		return o.step(erasing, Erase, New, 0)
	}
	return o.step(cleaning, Look, New, 0)
}

func (o *Op) cleaned(r Result) Step {
	switch {
	case o.at == waiting, o.at == erasing && r.Code == Changed:
		return o.clean()
	case o.at == cleaning && r.Code == Leased:
		return o.step(waiting, Wait, New, 0)
	case o.at == cleaning && r.Code == Found:
		return o.step(erasing, EraseIf, New, r.CAS)
	case o.class == Delete && o.found:
		return o.done(Deleted)
	case o.class == Delete:
		return o.done(Missed)
	}
	return o.done(Answered)
}
