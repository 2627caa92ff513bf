// Package claim is what is known of one claim, and what may be done with it whatever the other
// claims, the members and the Jobs are: when it is released, when its volume may be set aside, and
// when it grows. It is pure. The plan asks these rules about what was observed; who carries it out
// asks them about the live claim.
package claim

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/drainer/contract"
)

// DrainPolicy says what becomes of the claims of departed members.
type DrainPolicy int

// The drain policies.
const (
	Drain DrainPolicy = iota
	Retain
	Delete
)

// Request is what a person asked for by annotation on a claim.
type Request string

// The requests.
const (
	NoRequest Request = ""
	Skip      Request = "skip"
	Retry     Request = "retry"
	Hold      Request = "hold"
)

// Claim is a member's claim, present or past.
type Claim struct {
	Name    string
	UID     types.UID
	Ordinal int32
	// Finalizer: ours is on it.
	Finalizer bool
	// Adopted: it was there before its member, so its volume may have more than a cache.
	Adopted bool
	// Aside: it takes over the volume of a deleted claim of this ordinal.
	Aside bool
	// Deleting: it has a deletionTimestamp, so nothing can mount it any more.
	Deleting bool
	// InUse: a pod that is bound to a node mounts it. Kubernetes tells this only of a
	// claim that is being deleted.
	InUse bool
	// Volume that it is or was bound to, or asks for; empty before that.
	Volume string
	// Pending: it is an aside claim, and the volume is not bound to it yet.
	Pending bool
	// AsideName is the name of the claim that takes over its volume when that is set
	// aside.
	AsideName string
	// Asked is the size that it asks for, Capacity that of its volume, in bytes. Both are
	// 0 until a volume is bound to it.
	Asked, Capacity int64
	// Where its volume is. Only set if the volume may have to be set aside.
	Where Where
	// LeavingSince is the time in the leaving mark; zero while the claim is a member's. It tells
	// the age of the mark, and no order: another replica's clock may have written it.
	LeavingSince time.Time
	// Left is the number of the mark: a higher one was written later. Marks that were written
	// together have the same one. 0: none is known, so the mark counts as older than all others.
	Left int64
	// Decided: what becomes of the volume is written beside the mark: Policy, and
	// ReleaseUnreadable as in Terms. A later spec changes neither.
	Decided           bool
	Policy            DrainPolicy
	ReleaseUnreadable bool
	// Unmoved: its member left before its items were moved.
	Unmoved bool
	// NotStartedYet: its member has not started yet. NeverStarted: it had not when it was
	// told to leave.
	NotStartedYet, NeverStarted bool
	// Receipt that was recorded on the claim, if one was.
	Receipt *contract.Receipt
	// Request by annotation.
	Request Request
	// Moved is the serial of the ring by which its member's items were last moved; of an
	// aside claim, that of the last ring by which clients stored items on its volume, or 0.
	// MoveRequest is what a person asked for: Skip or Retry.
	Moved       int64
	MoveRequest Request
	// Attempts that failed in a row.
	Attempts action.Attempts
}

// Where says where the volume of a claim is.
type Where int

// The places of a volume.
const (
	// NotLookedAt: the volume was not read.
	NotLookedAt Where = iota
	// Here: bound to this claim, or to none.
	Here
	// Reserved: it waits for the claim that takes it over.
	Reserved
	// Promised: it waits for this claim. Kubernetes binds the two, even if the claim is being
	// deleted.
	Promised
	// Elsewhere: somebody else bound it to another claim, or to none.
	Elsewhere
	// Gone: there is no such volume.
	Gone
	// Forbidden: the operator may not read volumes.
	Forbidden
)

// Ref names the claim.
func (c *Claim) Ref() action.ClaimRef {
	return action.ClaimRef{Name: c.Name, UID: c.UID, Ordinal: c.Ordinal}
}

// now stands for the time of a mark that is about to be written, and is later than all others.
var now = time.Unix(1<<40, 0)

// LeaveNow notes that the claim is about to get the leaving mark.
func (c *Claim) LeaveNow() { c.LeavingSince, c.Left = now, math.MaxInt64 }

// LeavesNow tells whether it is about to get the mark.
func (c *Claim) LeavesNow() bool { return c.LeavingSince.Equal(now) }

// LeavingAt is when the claim's member was told to leave, if the mark is written.
func (c *Claim) LeavingAt() (at time.Time, told bool) {
	return c.LeavingSince, !c.LeavingSince.IsZero() && c.LeavingSince != now
}

// KeptByAPerson tells whether a person wants no drain of the claim: it is held, or given up.
func (c *Claim) KeptByAPerson() bool { return c.Request == Hold || c.Request == Skip }

// Small tells whether the volume of a member is smaller than wanted. Claims of leaving
// members don't grow.
func (c *Claim) Small(wanted int64) bool {
	return c.LeavingSince.IsZero() && !c.Deleting && 0 < c.Capacity && c.Capacity < wanted
}
