// Package model explores the plan beside a small model of a cluster: every order of the events of
// the operator, of Kubernetes' controllers and of people, from a cluster at rest, with a bounded
// number of people's actions (deeds) and faults.
//
// The pure parts of the operator are the real ones: plan.Next on the state in its caches, and the
// plan's live checks before steps that can't be undone. The model replaces observe and apply, the
// API server, Kubernetes' controllers and kubelets, and the caches, which may lag. Between any two
// actions of a plan any other event may happen, and the operator may die.
//
// Production's observe and apply take a sample of the same steps, over objects of the API,
// and have to read and leave the same (production_test.go).
//
// After each event the invariants of test/invariants are checked. From each state that was reached,
// a state at rest that people want must be reachable without more deeds or faults.
package model

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The bounds of the model: members, objects of each kind for one member, and how far
// generations and instances are counted before they start again.
const (
	ordinals = 3
	slots    = 3
	many     = 16
)

// kind is a kind of object; each kind has its own cache.
type kind uint8

const (
	clusterKind kind = iota
	membersKind
	podsKind
	claimsKind
	jobsKind
	listKind
	kinds
)

func (k kind) String() string {
	return [...]string{"the Memcached", "the StatefulSet", "pods", "claims", "Jobs", "the clients' list"}[k]
}

// objects has the objects of one cluster, live or as a cache shows them.
type objects struct {
	cluster cluster
	members statefulSet
	pods    pods
	claims  [ordinals][slots]claim
	jobs    [ordinals][slots]job
	list    list
}

// cluster is the Memcached.
type cluster struct {
	exists, deleting, finalizer bool
	size                        int8
	// client is the one that the spec names, off tells whether moves are Off, and servers is how
	// many servers status has.
	client  int8
	off     bool
	servers int8
}

type statefulSet struct {
	exists   bool
	replicas int8
}

// claim is a claim of a member, by ordinal. The first claim has the member's name, the others are
// aside claims. The generation stands for the UID.
type claim struct {
	exists, finalizer, deleting, leaving bool
	// protected: the claim has Kubernetes' own finalizer, so a pod may use it.
	protected bool
	// pending: an aside claim that is not bound yet. carries: its marks are not carried over yet. restored: the
	// operator took it for one that a backup has brought back.
	pending    bool
	carries    bool
	restored   bool
	generation int8
	// of is the generation of the claim whose volume it takes over; 0 for none.
	of int8
	// volume is the one that the claim has, or asks for; 0 for none.
	volume  int8
	receipt receipt
	request request
	// moved is the serial by which the member's items were moved or, for an aside claim, by which clients
	// stored items; moving is a person's request.
	moved  int8
	moving request
	// counted is the instance of the Job whose failure was counted last, 0 for none.
	counted int8
	// unmoved: its member left before its items were moved.
	unmoved bool
	// left orders departures. fresh is how recently the member was told to leave: 2 less
	// than ten seconds ago, 1 less than a minute ago, 0 before.
	left, fresh int8
	// policy is the one that was decided when the member left.
	policy int8
}

// volume is named by the generation of its first claim. The volume waits for the claim of a name. If bound is
// not 0, it is bound to a claim of that name.
type volume struct {
	name, of, bound int8
	item            item
}

type receipt uint8

const (
	noReceipt receipt = iota
	goodReceipt
	shortReceipt // doesn't add up
)

type request uint8

const (
	noRequest request = iota
	skip
	retry
	hold
	requests
)

// pods has the pods by their kind.
type pods struct {
	members  [ordinals]pod
	drainers [ordinals][slots]drainer
	// recent: a member became ready less than ten seconds ago.
	recent bool
}

type podState uint8

const (
	noPod podState = iota
	pending
	running
	succeeded
	failed
)

// pod is a member's pod. A running pod has mounted the claim of this generation.
type pod struct {
	state      podState
	generation int8
}

// drainer is the pod of the Job of this instance. With a serial in its target, it moves items.
// waits: it was not told to begin.
type drainer struct {
	state                podState
	generation, instance int8
	target               target
	said                 receipt
	waits                bool
}

type jobState uint8

const (
	noJob jobState = iota
	active
	complete
	gaveUp
)

// job drains the claim of this generation. With a serial in its target, it moves the items of the
// claim's member. The instance stands for the UID.
type job struct {
	state                jobState
	generation, instance int8
	target               target
	// waits: its drainers wait until they are told to begin. due: the Job failed, and the next
	// attempt is due.
	waits, due bool
}

// step is an action of a plan that is still to be taken.
type step struct {
	verb                verb
	ordinal, generation int8
	// argument: replicas (of the clients' list in place of a generation), survivors, a Job's instance, a reason or servers.
	argument int8
	// target is that of a move.
	target target
}

// steps has the remaining steps of the plan that is being applied.
type steps struct {
	n    int8
	todo [4 * ordinals]step
	// was is the clients' list that was seen, list the one to write.
	was, list list
}

// ordinalPast is the past of an ordinal: the facts about its claims and volumes that the invariants
// need, and the numbers that were used.
type ordinalPast struct {
	claims               [slots]claimPast
	volumes              [slots]volumePast
	generation, instance int8
	// said is the ring by which a drainer last reported the items of this claim's member
	// as moved.
	said struct {
		generation int8
		target     target
	}
}

type claimPast struct {
	smallest int8
	heard    [shortReceipt + 1]bool
}

type volumePast struct{ left, givenUp bool }

// budget is how many deeds, faults, lags and deaths may still happen.
type budget struct{ deeds, faults, lags, deaths int8 }

// state is a state of the model. A state is comparable: equal states have equal futures.
type state struct {
	live, seen objects
	// volumes are read live.
	volumes [ordinals][slots]volume
	// lags has the kinds whose cache lags, passes those whose cache shows a state in
	// between before it catches up.
	lags, passes [kinds]bool
	between      objects
	// ending: the namespace is terminating.
	ending bool
	// dead has the volumes, by ordinal, whose node is dead, so that no pod can mount them.
	dead [ordinals]int8
	// discarded: the last value may be missing, because a member was lost.
	discarded bool
	// mixed: a person changed where clients look before items were moved, so clients may
	// find old values (docs/hazards.md).
	mixed bool
	// forgotten: the item no longer matters, because a person skipped moves, or gave items up.
	forgotten bool
	todo      steps
	past      [ordinals]ordinalPast
	budget    budget
}

// copyKind copies the objects of one kind.
func (o *objects) copyKind(k kind, from *objects) {
	switch k {
	case clusterKind:
		o.cluster = from.cluster
	case membersKind:
		o.members = from.members
	case podsKind:
		o.pods = from.pods
	case claimsKind:
		o.claims = from.claims
	case jobsKind:
		o.jobs = from.jobs
	case listKind:
		o.list = from.list
	}
}

// differs tells whether the objects of one kind differ.
func (o *objects) differs(k kind, from *objects) bool {
	switch k {
	case clusterKind:
		return o.cluster != from.cluster
	case membersKind:
		return o.members != from.members
	case podsKind:
		return o.pods != from.pods
	case claimsKind:
		return o.claims != from.claims
	case jobsKind:
		return o.jobs != from.jobs
	}
	return o.list != from.list
}

// sync removes the claims that no finalizer keeps, and updates the caches that don't lag.
func (s *state) sync() {
	s.endClaims()
	for k := range kinds {
		if !s.lags[k] {
			s.seen.copyKind(k, &s.live)
		}
	}
}

// endClaims removes the claims that no finalizer keeps, with the write that removed the
// last one: no cache shows a deleted claim without a finalizer.
func (s *state) endClaims() {
	for i := range s.live.claims {
		for slot := range s.live.claims[i] {
			if c := &s.live.claims[i][slot]; c.deleting && !c.finalizer && !c.protected {
				*c = claim{}
			}
		}
	}
}

// claimOf returns the live claim of this generation, or nil.
func (o *objects) claimOf(ordinal, generation int8) *claim {
	for i := range o.claims[ordinal] {
		if c := &o.claims[ordinal][i]; c.exists && c.generation == generation {
			return c
		}
	}
	return nil
}

// volumeNamed returns the volume, or nil.
func (s *state) volumeNamed(ordinal, name int8) *volume {
	for i := range s.volumes[ordinal] {
		if v := &s.volumes[ordinal][i]; name != 0 && v.name == name {
			return v
		}
	}
	return nil
}

// jobOf returns the Job that drains this claim, or nil.
func (o *objects) jobOf(ordinal, generation int8) *job {
	for i := range o.jobs[ordinal] {
		if j := &o.jobs[ordinal][i]; j.state != noJob && j.generation == generation && !j.target.moves() {
			return j
		}
	}
	return nil
}

// instanceOf returns the Job of this instance, or nil.
func (o *objects) instanceOf(ordinal, instance int8) *job {
	for i := range o.jobs[ordinal] {
		if j := &o.jobs[ordinal][i]; j.state != noJob && j.instance == instance {
			return j
		}
	}
	return nil
}

// drainerOf returns the pod of this Job, or nil.
func (p *pods) drainerOf(ordinal, instance int8) *drainer {
	for i := range p.drainers[ordinal] {
		if d := &p.drainers[ordinal][i]; d.state != noPod && d.instance == instance {
			return d
		}
	}
	return nil
}

// replace replaces the pod of this Job by the one in others.
func (p *pods) replace(ordinal, instance int8, others *pods) {
	if d := p.drainerOf(ordinal, instance); d != nil {
		*d = drainer{}
	}
	if d := others.drainerOf(ordinal, instance); d != nil {
		*free(p.drainers[ordinal][:]) = *d
	}
}

// lastReady is when the last of the members that serve became ready.
func (p *pods) lastReady() time.Time {
	switch {
	case len(p.ready()) == 0:
		return time.Time{}
	case p.recent:
		return justNow
	}
	return podsMade.Time
}

// ready returns the members that serve.
func (p *pods) ready() []int32 {
	var ready []int32
	for i := range p.members {
		if p.members[i].state == running {
			ready = append(ready, int32(i))
		}
	}
	return ready
}

// mounting returns the claim's UID once for each drainer that mounts it and has not ended.
func (p *pods) mounting(ordinal, generation int8) []types.UID {
	var all []types.UID
	for i := range p.drainers[ordinal] {
		d := &p.drainers[ordinal][i]
		if (d.state == pending || d.state == running) && d.generation == generation && !d.target.moves() {
			all = append(all, claimUIDs[ordinal][generation])
		}
	}
	return all
}

// free returns a slot for a new one.
func free[T comparable](slots []T) *T {
	var none T
	for i := range slots {
		if slots[i] == none {
			return &slots[i]
		}
	}
	panic(fmt.Sprintf("the model has no room for one more of %v", slots))
}

// used tells whether a pod uses the claim, or has used it and still keeps it from being deleted.
func (p *pods) used(ordinal, generation int8) bool {
	if m := &p.members[ordinal]; m.state >= running && m.generation == generation {
		return true
	}
	for i := range p.drainers[ordinal] {
		if d := &p.drainers[ordinal][i]; d.state >= running && d.generation == generation && !d.target.moves() {
			return true
		}
	}
	return false
}
