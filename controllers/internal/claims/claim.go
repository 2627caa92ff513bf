// Package claims decides what happens to the claims of leaving and departed members: finalizer, leaving mark,
// drain, retry, a person's request, set aside, release. The package is pure, and knows nothing of rings,
// clients and routers: package plan says what a drain waits for (Given). Package apply asks its checks (May…)
// about live state.
//
//	claim.go       the facts about one claim         facts.go       all claims, their Jobs and pods
//	unit.go        the claims of one member          end.go         the owner or the namespace goes
//	mayrelease.go  when a claim is released          aside.go       how a volume gets another claim
//	drain.go       Decide: each claim's next step    retry.go       what failed or was refused, and is tried again
//	restored.go    marks that are another claim's
package claims

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// DrainPolicy says what happens to the claims of departed members.
type DrainPolicy int

// The drain policies.
const (
	Drain DrainPolicy = iota
	Retain
	Delete
)

// Request is a person's request by an annotation on a claim.
type Request string

// The requests.
const (
	NoRequest Request = ""
	Skip      Request = "skip"
	Retry     Request = "retry"
	Hold      Request = "hold"
)

// Claim is the holder of a member's items, with the known facts about them: the member's claim, present or
// past, or a unit of such claims (Together); without volumes, the member's pod.
type Claim struct {
	// InPod: the holder is the pod of a member without a volume. A pod has no finalizer, and is neither
	// drained, nor set aside, nor released: when it goes, its items go.
	InPod bool
	// Unstamped: the pod was created a moment ago, and doesn't say yet by which ring clients have filled it.
	Unstamped bool
	Name      string
	UID       types.UID
	Ordinal   int32
	// Template is the name of its claim template, if a member may have several claims.
	Template string
	// With has the UIDs of the other claims of a unit, joined by commas; empty for one claim.
	With string
	// Finalizer: the claim has our finalizer.
	Finalizer bool
	// Protected: the operator has seen the claim while its member was wanted, or has set its volume
	// aside. Labelled: it has the owner's label.
	Protected, Labelled bool
	// OwnedByPod: Kubernetes deletes the claim when its member's pod is gone. OwnedBySet: Kubernetes deletes
	// the claim when the StatefulSet is gone.
	OwnedByPod, OwnedBySet bool
	// Created and DeletedAt are set if a member may have several claims; DeletedAt is zero until the claim is
	// deleted.
	Created, DeletedAt time.Time
	// Adopted: the claim existed before its member, so its volume may have more data than a cache.
	Adopted bool
	// Restored: a backup has brought the claim back after its member left. Unnoted: the operator has not
	// noted that yet, so the marks on the claim are about another one.
	Restored, Unnoted bool
	// Aside: the claim takes over the volume of a deleted claim of this ordinal. First is the UID of that
	// claim. Fresh: its marks are those of the first claim, until they are carried over.
	Aside bool
	First types.UID
	Fresh bool
	// Deleting: the claim has a deletionTimestamp, so no pod can mount it any more.
	Deleting bool
	// InUse: a pod that is bound to a node mounts the claim. Kubernetes says so only for a claim
	// that is being deleted.
	InUse bool
	// Volume is the volume that the claim is or was bound to, or asks for; empty before that.
	Volume string
	// Pending: this is an aside claim, and the volume is not bound to it yet.
	Pending bool
	// AsideName is the name of the claim that takes over the volume when it is set aside.
	AsideName string
	// Asked is the size that the claim asks for, Capacity the size of its volume, in bytes. Both
	// are 0 until a volume is bound.
	Asked, Capacity int64
	// Where says where the volume is. Where is only set if the volume may have to be set aside.
	Where Where
	// LeavingSince is the time in the leaving mark; zero while the claim is a member's. The time
	// tells the age of the mark, but no order: the clock of another replica may have written it.
	LeavingSince time.Time
	// Left is the number of the mark: a higher number was written later. Marks that were written
	// together have the same number. 0 means unknown, and counts as older than all others.
	Left int64
	// Decided: Policy and ReleaseUnreadable (as in Terms) were written beside the mark. A later
	// change of the spec affects neither.
	Decided           bool
	Policy            DrainPolicy
	ReleaseUnreadable bool
	// Unmoved: its member left before its items were moved.
	Unmoved bool
	// NotStartedYet: the claim's member has not started yet. NeverStarted: the member had not
	// started when it was told to leave.
	NotStartedYet, NeverStarted bool
	// Receipt is the receipt that was recorded on the claim; nil if there is none.
	Receipt *action.Receipt
	// Request is a person's, by annotation.
	Request Request
	// Moved is the serial of the ring by which the member's items were last moved; for an aside claim, the
	// serial of the last ring by which clients stored items on its volume, or 0. MoveRequest is what a person
	// asked for: Skip or Retry.
	Moved       int64
	MoveRequest Request
	// Attempts counts the attempts that failed in a row.
	Attempts action.Attempts
}

// Where says where the volume of a claim is.
type Where int

// The places of a volume.
const (
	// NotLookedAt: the operator has not read the volume.
	NotLookedAt Where = iota
	// Here: the volume is bound to this claim, or to none.
	Here
	// Reserved: the volume waits for the claim that takes it over.
	Reserved
	// Promised: the volume waits for this claim. Kubernetes binds the two even if the claim is
	// being deleted.
	Promised
	// Elsewhere: another client has bound the volume to another claim, or has left it unbound.
	Elsewhere
	// Gone: the volume doesn't exist.
	Gone
	// Forbidden: the operator may not read volumes.
	Forbidden
	// NoneYet: the claim has no volume yet, and a backup may fill it when a pod mounts it.
	NoneYet
)

// Kind is the holder's kind, in words.
func (c *Claim) Kind() string {
	if c.InPod {
		return "pod"
	}
	return "claim"
}

// Ref names the claim.
func (c *Claim) Ref() action.ClaimRef {
	return action.ClaimRef{Name: c.Name, UID: c.UID, Ordinal: c.Ordinal}
}

// markPending is the time of a mark that is planned and not written yet, later than the time of every written
// mark.
var markPending = time.Unix(1<<40, 0)

// PlanMark notes that the claim is about to get the leaving mark, with a higher number than all
// others.
func (c *Claim) PlanMark() { c.LeavingSince, c.Left = markPending, math.MaxInt64 }

// PlanUnmark notes that the claim is about to lose the leaving mark, and all that came with it. A
// person's skip or retry was about that departure; a hold stays.
func (c *Claim) PlanUnmark() {
	c.LeavingSince, c.Left, c.Decided, c.Policy, c.Receipt, c.Attempts = time.Time{}, 0, false, Drain, nil, action.Attempts{}
	if c.Request != Hold {
		c.Request = NoRequest
	}
}

// MarkPending tells whether the leaving mark is planned and not written yet.
func (c *Claim) MarkPending() bool { return c.LeavingSince.Equal(markPending) }

// LeavingAt is when the claim's member was told to leave; told is false if the mark is not written
// yet.
func (c *Claim) LeavingAt() (at time.Time, told bool) {
	return c.LeavingSince, !c.LeavingSince.IsZero() && c.LeavingSince != markPending
}

// KeptByAPerson tells whether a person wants no drain of the claim: the request is Hold or Skip.
func (c *Claim) KeptByAPerson() bool { return c.Request == Hold || c.Request == Skip }

// Small tells whether the volume of a member is smaller than wanted. Claims of leaving
// members don't grow.
func (c *Claim) Small(wanted int64) bool {
	return c.LeavingSince.IsZero() && !c.Deleting && 0 < c.Capacity && c.Capacity < wanted
}

// CanBeSetAside tells whether the volume can still be given to another claim.
func (c *Claim) CanBeSetAside() bool { return c.Finalizer && (c.Where == Here || c.Where == Reserved) }

// WhyNotSetAside says why the volume can't be given to another claim.
func (c *Claim) WhyNotSetAside() string {
	switch c.Where {
	case Gone:
		return "its volume " + c.Volume + " is gone"
	case Elsewhere, Reserved:
		return "its volume " + c.Volume + " was bound to another claim"
	case NotLookedAt, Forbidden, NoneYet, Here, Promised:
	}
	return "the operator has no right to set its volume " + c.Volume + " aside"
}

// HandsOver tells whether the claim can only be released after its volume was handed over to the
// aside claim. Until the aside claim has the volume, a person can still skip its drain.
func (c *Claim) HandsOver(aside *Claim) bool {
	return aside != nil && (!aside.Pending || c.Request != Skip)
}

// HasVolumeToHandOver tells whether the claim is being deleted and still has a volume.
func (c *Claim) HasVolumeToHandOver() bool {
	return c.Deleting && c.Finalizer && c.Volume != "" && c.Where != Gone
}

// Terms are the cluster's settings for all its claims.
type Terms struct {
	// Policy for the claims of departed members.
	Policy DrainPolicy
	// ReleaseUnreadable: spec.drain.onUnrecoverable is Release.
	ReleaseUnreadable bool
	// Deleting: the owner is being deleted, or is gone already.
	Deleting bool
	// SetGone: the StatefulSet is being deleted, or is gone.
	SetGone bool
	// NamespaceTerminating: no pod can be created in the namespace any more.
	NamespaceTerminating bool
	// Names are the words of messages.
	Names Names
}

// Names are the words of messages; each that is empty is a Memcached's.
type Names struct {
	// Owner of the claims: "the Memcached". Data that a volume has: "items". Policy is the field:
	// "spec.drain.policy". NoSurvivors says why there are none: "the cluster hibernates".
	Owner, Data, Policy, NoSurvivors string
}

func (n Names) owner() string       { return cmp.Or(n.Owner, "the Memcached") }
func (n Names) data() string        { return cmp.Or(n.Data, "items") }
func (n Names) policy() string      { return cmp.Or(n.Policy, "spec.drain.policy") }
func (n Names) noSurvivors() string { return cmp.Or(n.NoSurvivors, "the cluster hibernates") }

// PolicyFor is the policy for the claim of a departed member. The decision written when the member
// left overrides the present spec; a person who asks for a retry wants the claim drained. No policy
// deletes a claim that a backup has brought back.
func (t *Terms) PolicyFor(c *Claim) DrainPolicy {
	policy := t.Policy
	if c.Decided {
		policy = c.Policy
	}
	switch {
	case c.Request == Retry && !c.LeavingSince.IsZero(), policy == Delete && c.Restored:
		return Drain
	}
	return policy
}

// ToDrain tells whether the claim's volume is to be drained after its member has left.
func (t *Terms) ToDrain(c *Claim) bool { return t.PolicyFor(c) == Drain }

// releasesUnreadable tells whether the claim is released if its volume can't be read. Like the
// policy, this is decided when the member leaves.
func (t *Terms) releasesUnreadable(c *Claim) bool {
	if c.Decided {
		return c.ReleaseUnreadable
	}
	return t.ReleaseUnreadable
}

func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}
