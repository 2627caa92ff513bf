package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// Cluster is what the spec wants.
type Cluster struct {
	// Size wanted; 0 hibernates.
	Size int32
	// Policy for the claims of departed members.
	Policy claim.DrainPolicy
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
	// DeleteClaims: spec.drain.whenDeleted is Delete.
	DeleteClaims bool
	// Plain: without storage.
	Plain bool
	// StableAddresses: each member has a Service of its own.
	StableAddresses bool
	// Discovery: the members are told of the clients' list.
	Discovery bool
	// Routers are asked for, or something of them is there.
	Routers bool
	// Exclusive: no client asks members but routers.
	Exclusive bool
	// NamespaceTerminating: nothing can run here any more.
	NamespaceTerminating bool
	// Finalizer: the cluster's own is in place.
	Finalizer bool
	// Ring has what the spec says of it; the plan sets its Size. MovesOff:
	// spec.routing.moves is Off.
	Ring     ring.Ring
	MovesOff bool
	// Patience is how long a leaving member waits for its last client; 0 not at all: its
	// items are drained when it is gone.
	Patience time.Duration
	// MoveDeadline is how long a leaving member's mover may be at work, patience included.
	MoveDeadline time.Duration
	// VolumeSize is what each member's volume is to have, and Memory what it must be
	// larger than, in bytes.
	VolumeSize, Memory int64
	// VolumeSizeGiven: spec.storage.size says it. Otherwise it follows memory.
	VolumeSizeGiven bool
}

// Terms of the cluster's claims.
func (c *Cluster) Terms() *claim.Terms {
	return &claim.Terms{Policy: c.Policy, ReleaseUnreadable: c.ReleaseUnreadable, Deleting: c.Deleting, NamespaceTerminating: c.NamespaceTerminating}
}

// StatefulSet of the members.
type StatefulSet struct {
	Exists   bool
	UID      types.UID
	Deleting bool
	Replicas int32
}

// JobState is the state of a Job.
type JobState int

// The states of a Job.
const (
	JobActive JobState = iota
	JobComplete
	JobFailed
)

// Job drains a claim, or moves the items of its member.
type Job struct {
	Name string
	UID  types.UID
	// ClaimUID of the claim that it drains, or whose member's items it places.
	ClaimUID types.UID
	// Survivors is the number of members that it adds items to: the ordinals below it.
	Survivors int32
	// Target names the ring by which it moves items; empty for a drain.
	Target string
	// Waits: each of its pods waits until it is told to begin (Drainer.Waits).
	Waits bool
	State JobState
	// Unstarted: it is active, and none of the pods that it has now has run. Outdated: today
	// its pods would be made in another way.
	Unstarted, Outdated bool
	// Misdirected: members listen at other ports than when it was made.
	Misdirected bool
	// Deleting: its pod may still run.
	Deleting bool
	// PodKept: it failed, and another container keeps its pod running. When that pod ends,
	// Kubernetes starts the next one, until the Job is gone.
	PodKept bool
	// Receipt of its last pod, or why there is none.
	Receipt    *contract.Receipt
	ReceiptErr error
	// Message says why it failed, and Ended when it ended.
	Message string
	Ended   time.Time
}

// Drainer is a pod that drains the claim, or, with a Target, moves the items of the
// claim's member by that ring.
type Drainer struct {
	Pod      string
	ClaimUID types.UID
	Target   string
	// Waits: it moves nothing until it is told to begin.
	Waits bool
	// Running: it has started. Prepared: it has also connected to everybody that it needs, as
	// far as that is known. Settles: a leaving member's has found nothing more, and waits for
	// the last clients.
	Running, Prepared, Settles bool
}

// Obstruction is why the API server has refused a step about a claim, and until when none is tried
// again. Taken: an object of another owner has a name that it needs.
type Obstruction struct {
	Why   string
	Taken bool
	Until time.Time
}

// Observed is everything that a plan depends on.
type Observed struct {
	Now         time.Time
	Cluster     Cluster
	StatefulSet StatefulSet
	// Pods has the ordinals of the member pods that exist, in any phase; Ready those of
	// the members that serve.
	Pods, Ready []int32
	// LastReady is when the last of those became ready.
	LastReady time.Time
	// Away has the other members that the StatefulSet should have.
	Away []Away
	// ClaimsWithDrainerPod has the UIDs of the claims that a drainer's pod mounts, or
	// whose member's items it places.
	ClaimsWithDrainerPod []types.UID
	// ClaimsWithDrainerAtWork has those of them whose drain runs, or has ended well.
	ClaimsWithDrainerAtWork []types.UID
	// Drainers are those that have not ended, even if their Job is gone.
	Drainers []Drainer
	// Claims in any order.
	Claims []claim.Claim
	// Obstructed are the claims of which the last step was refused, by their UIDs.
	Obstructed map[types.UID]Obstruction
	// Jobs drain; Moves move items.
	Jobs, Moves []Job
	// ListSize is how many members are on the clients' list now, and Record what is known
	// of its rings: see ReadList.
	ListSize int32
	Record   ring.Record
	// MemoryRuns: a member is ready that has Cluster.Memory.
	MemoryRuns bool
	// MemberPods are those of members that are told of the list, RouterPods of routers that
	// are told of their table.
	MemberPods, RouterPods []action.PodRef
	// Table is what routers were told; nil if that can't be read, or there are none.
	Table *ring.Table
	// MemberServices are the members' own Services that the cluster controls.
	MemberServices []MemberService
	// Room for a scale-down that is about to begin; nil if none is.
	Room *Room
}

// Room compares what the leaving members have with what the survivors have room for, in
// bytes.
type Room struct {
	Leaving, Free int64
	// Unknown is why the numbers are not known.
	Unknown string
	// Pending: the members were asked a moment ago, and not all have answered.
	Pending bool
}

// Asking tells whether the answer is still to come.
func (r *Room) Asking() bool { return r != nil && r.Pending }

// Short tells whether the items don't fit.
func (r *Room) Short() bool { return r != nil && !r.Pending && r.Unknown == "" && r.Leaving > r.Free }

func (o *Observed) podExists(ordinal int32) bool { return slices.Contains(o.Pods, ordinal) }

// memberExists tells whether the claim's member is still there. If the volume was set
// aside, a pod of that name uses another claim.
func (o *Observed) memberExists(c *claim.Claim) bool { return !c.Aside && o.podExists(c.Ordinal) }

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

// mayRun tells whether a pod of the Job may be at work, now or later.
func (j *Job) mayRun() bool { return j.running() || j.PodKept && j.mendable() }
