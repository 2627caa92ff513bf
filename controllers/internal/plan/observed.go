// Package plan decides what to do about a cluster with storage. It is pure:
// what was observed goes in, actions with a reason each come out. The states
// of a volume and the invariants of a scale-down live here, and nowhere else.
//
//	member ──size lowered──▶ leaving ──pod gone──▶ departed ──a Job drains it──▶ receipt ──▶ let go
//	                                                  │            │
//	                                                  │            └── failed: kept, tried again
//	                                                  └── held, skipped by a person
//
// The leaving mark on the claim is written before the StatefulSet is made smaller, and
// never taken off. The volume doesn't come back as a member's: its values may be old by
// then.
//
// A claim that is being deleted can't be mounted any more. Its volume is set
// aside (aside.go): it moves to another claim, which has the mark from its birth.
package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/ring"
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

// Cluster is what the spec wants.
type Cluster struct {
	// Size wanted; 0 hibernates.
	Size int32
	// Policy for the claims of departed members.
	Policy DrainPolicy
	// ReleaseUnreadable: spec.drain.onUnrecoverable is Release.
	ReleaseUnreadable bool
	// WaitForRoom: spec.drain.onShortage is Wait.
	WaitForRoom bool
	// Parallelism is how many drains may run at once, 1 at least.
	Parallelism int32
	// Deleting: the Memcached is being deleted, or is gone already.
	Deleting bool
	// Orphan: the members stay, without a Memcached.
	Orphan bool
	// DeleteClaims: they go with the Memcached.
	DeleteClaims bool
	// Plain: without storage.
	Plain bool
	// NamespaceTerminating: nothing can run here any more.
	NamespaceTerminating bool
	// Finalizer: the cluster's own is in place.
	Finalizer bool
	// Ring that the spec makes of its members; its Size is for the plan to say. With
	// PlacementOff, items stay where they are when the ring changes.
	Ring         ring.Ring
	PlacementOff bool
	// VolumeSize that each member is to have, and Memory that it holds more than,
	// in bytes.
	VolumeSize, Memory int64
}

// StatefulSet of the members.
type StatefulSet struct {
	Exists   bool
	Deleting bool
	Replicas int32
}

// Claim is a member's claim, present or past.
type Claim struct {
	Name    string
	UID     types.UID
	Ordinal int32
	// Finalizer: ours is on it.
	Finalizer bool
	// Adopted: it was there before its member, and may have more on its volume.
	Adopted bool
	// Aside: it takes over the volume of a claim of this ordinal that was deleted.
	Aside bool
	// Deleting: it has a deletionTimestamp, so that nothing can mount it any more.
	Deleting bool
	// InUse, of a claim that is being deleted: a pod that mounts it has a node.
	InUse bool
	// Volume that it is, or was, bound to, or asks for; empty before that.
	Volume string
	// Pending, of an aside claim: the volume is not bound to it yet.
	Pending bool
	// AsideName is the name of the claim that would take its volume over.
	AsideName string
	// Asked is the size that it asks for, Capacity that of its volume, in bytes; 0
	// unless a volume is bound to it.
	Asked, Capacity int64
	// Where its volume is, of a claim whose volume may have to be set aside.
	Where Where
	// Released is when the member left; zero while it is a member's.
	LeavingSince time.Time
	// Unplaced: it left before anybody looked through what it holds.
	Unplaced bool
	// NotStartedYet: its member has not started yet. NeverStarted: it had not when it was
	// told to leave.
	NotStartedYet, NeverStarted bool
	// Receipt that was recorded on the claim, if one was.
	Receipt *contract.Receipt
	// Request by annotation.
	Request Request
	// Placed is the serial of the ring by which the items of its member were placed
	// last, and PlacementRequest what a person asked for about that: Skip or Retry.
	Placed           int64
	PlacementRequest Request
	// Attempts to move its items that failed in a row.
	Attempts Attempts
}

// Where is where the volume of a claim is.
type Where int

// The places of a volume.
const (
	// NotLookedAt: nobody has to know.
	NotLookedAt Where = iota
	// Here: bound to this claim, or to none.
	Here
	// Reserved: it waits for the claim that takes it over.
	Reserved
	// Elsewhere: bound to a claim that somebody else chose.
	Elsewhere
	// Gone: there is no such volume.
	Gone
	// Forbidden: the operator may not look at volumes.
	Forbidden
)

// JobState is the state of a Job.
type JobState int

// The states of a Job.
const (
	JobActive JobState = iota
	JobComplete
	JobFailed
)

// Job drains a claim, or places what the claim's member holds.
type Job struct {
	Name string
	UID  types.UID
	// ClaimUID that it drains, or whose member's items it places.
	ClaimUID types.UID
	// Survivors it drains into, or places among: the ordinals below.
	Survivors int32
	// Target, of a placement, names the ring that it places by.
	Target string
	State  JobState
	// Deleting: it is on its way out, its pod may still run.
	Deleting bool
	// PodKept, of one that has failed: another container keeps its pod. When that one ends,
	// Kubernetes starts the next pod, until the Job is gone.
	PodKept bool
	// Receipt that its last pod left, or why there is none.
	Receipt    *contract.Receipt
	ReceiptErr error
	// Message of a Job that failed, and when one ended that has.
	Message string
	Ended   time.Time
}

// Drainer is a pod that moves what the claim's member holds, by the ring of that Target;
// or one that drains the claim, and has no Target.
type Drainer struct {
	Pod      string
	ClaimUID types.UID
	Target   string
}

// Observed is all that a plan rests on.
type Observed struct {
	// Now is the time.
	Now         time.Time
	Cluster     Cluster
	StatefulSet StatefulSet
	// Pods has the ordinals of the member pods that exist, in any phase, and Ready
	// those of the members that serve.
	Pods, Ready []int32
	// Away are the others that there are to be.
	Away []Away
	// ClaimsWithDrainerPod has the UIDs of the claims that a drainer's pod mounts, or whose
	// member's items are being placed.
	ClaimsWithDrainerPod []types.UID
	// ClaimsWithDrainerAtWork has those of them whose pod runs, or has ended well.
	ClaimsWithDrainerAtWork []types.UID
	// Drainers are those that have not ended: those, too, whose Job is gone.
	Drainers []Drainer
	// Claims in any order.
	Claims []Claim
	// Jobs that drain, and Placements, those that move items between members.
	Jobs, Placements []Job
	// ListSize is how many members clients were told of last, and Record what is known of
	// the rings that they have looked by: see Look.
	ListSize int32
	Record   ring.Record
	// Room of a scale-down that is about to begin; nil where none is.
	Room *Room
}

// Room is what the members that leave hold, and what those that stay have room
// for, in bytes.
type Room struct {
	Leaving, Free int64
	// Unknown is why nobody can tell.
	Unknown string
	// Pending: the members were asked a moment ago, and have not all answered.
	Pending bool
}

// Asking tells whether the answer is still to come.
func (r *Room) Asking() bool { return r != nil && r.Pending }

// Short tells whether items are about to be lost for want of room.
func (r *Room) Short() bool { return r != nil && !r.Pending && r.Unknown == "" && r.Leaving > r.Free }

func (o *Observed) podExists(ordinal int32) bool { return slices.Contains(o.Pods, ordinal) }

// memberExists tells whether the claim's member is still there. One whose volume
// was set aside may be back on another.
func (o *Observed) memberExists(c *Claim) bool { return !c.Aside && o.podExists(c.Ordinal) }

// drainerAtWork tells whether a drainer of the claim runs, or has ended well.
func (o *Observed) drainerAtWork(claim types.UID) bool {
	return slices.Contains(o.ClaimsWithDrainerAtWork, claim)
}

// jobFor returns the Job that drains the claim, or nil.
func (o *Observed) jobFor(claim types.UID) *Job {
	for i := range o.Jobs {
		if o.Jobs[i].ClaimUID == claim {
			return &o.Jobs[i]
		}
	}
	return nil
}

// running tells whether the Job's pod may be at work. A Job fails when its pods
// have ended.
func (j *Job) running() bool { return j.State == JobActive || j.Deleting && j.State != JobFailed }

// mayRun tells whether the Job's pod may be at work, now or later.
func (j *Job) mayRun() bool { return j.running() || j.PodKept && j.mendable() }
