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
	// Parallelism is how many drains may run at once; at least 1.
	Parallelism int32
	// Deleting: the Memcached is being deleted, or is gone already.
	Deleting bool
	// Orphan: the members stay, without a Memcached.
	Orphan bool
	// DeleteClaims: spec.drain.whenDeleted is Delete.
	DeleteClaims bool
	// Plain: the cluster has no storage.
	Plain bool
	// StableAddresses: each member has a Service of its own.
	StableAddresses bool
	// Discovery: the members are told of the clients' list.
	Discovery bool
	// Routers: the spec asks for routers, or some of their objects still exist.
	Routers bool
	// Exclusive: only routers call the members.
	Exclusive bool
	// NamespaceTerminating: no pod can be created in the namespace any more.
	NamespaceTerminating bool
	// Finalizer: the Memcached has our finalizer.
	Finalizer bool
	// Ring has what the spec says about the ring; the plan sets its Size. MovesOff:
	// spec.routing.moves is Off.
	Ring     ring.Ring
	MovesOff bool
	// Patience is how long a leaving member waits for its last client. With 0 it doesn't wait, and
	// its items are drained when it is gone.
	Patience time.Duration
	// MoveDeadline is how long a leaving member's mover may be at work, patience included.
	MoveDeadline time.Duration
	// VolumeSize is the wanted size of each member's volume, in bytes. Memory is what a volume must
	// be larger than, in bytes.
	VolumeSize, Memory int64
	// VolumeSizeGiven: spec.storage.size gives VolumeSize. Otherwise VolumeSize follows
	// spec.memory.
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
	// ClaimUID is of the claim that the Job drains, or whose member's items it moves.
	ClaimUID types.UID
	// Survivors is the number of members that the Job adds items to: the ordinals below it.
	Survivors int32
	// Target names the ring by which the Job moves items; empty for a drain.
	Target string
	// Waits: each of the Job's pods waits until it is told to begin (Drainer.Waits).
	Waits bool
	State JobState
	// Unstarted: the Job is active, and none of its present pods has run. Outdated: the Job's pods
	// would be made differently now.
	Unstarted, Outdated bool
	// Misdirected: members listen at other ports than when the Job was made.
	Misdirected bool
	// Deleting: the Job has a deletionTimestamp; its pod may still run.
	Deleting bool
	// PodKept: the Job's drainer failed, and another container keeps its pod running. When that pod
	// ends, Kubernetes starts the next one, until the Job is gone.
	PodKept bool
	// Receipt is of the Job's last pod; ReceiptErr says why there is none.
	Receipt    *contract.Receipt
	ReceiptErr error
	// Message says why the Job failed, and Ended when it ended.
	Message string
	Ended   time.Time
}

// Drainer is a pod that drains the claim, or, with a Target, moves the items of the
// claim's member by that ring.
type Drainer struct {
	Pod      string
	ClaimUID types.UID
	Target   string
	// Waits: the drainer moves nothing until it is told to begin.
	Waits bool
	// Running: the drainer has started. Prepared: it has also connected to all servers that it
	// needs, as far as is known. Settles: a leaving member's drainer has found nothing more, and
	// waits for the last clients.
	Running, Prepared, Settles bool
}

// Obstruction is why the API server has refused a step about a claim, and until when no such step
// is tried again. Taken: an object of another owner has a name that the step needs.
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
	// LastReady is when the last of the ready members became ready.
	LastReady time.Time
	// Away has the members that the StatefulSet should have and that aren't ready.
	Away []Away
	// ClaimsWithDrainerPod has the UIDs of the claims that a drainer's pod mounts, or whose
	// member's items it moves.
	ClaimsWithDrainerPod []types.UID
	// ClaimsWithDrainerAtWork has those of them whose drain runs or has succeeded.
	ClaimsWithDrainerAtWork []types.UID
	// Drainers are the drainers that have not ended, even if their Job is gone.
	Drainers []Drainer
	// Claims in any order.
	Claims []claim.Claim
	// Obstructed has the claims whose last step the API server refused, by their UIDs.
	Obstructed map[types.UID]Obstruction
	// Jobs drain; Moves move items.
	Jobs, Moves []Job
	// ListSize is how many members are on the clients' list now, and Record what is known about its
	// rings: see ReadList.
	ListSize int32
	Record   ring.Record
	// MemoryRuns: at least one member that has Cluster.Memory is ready.
	MemoryRuns bool
	// MemberPods are the pods of members that are told of the list, RouterPods those of routers
	// that are told of their table.
	MemberPods, RouterPods []action.PodRef
	// Table is what routers were told; nil if the table can't be read, or if there are no routers.
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
	// Unknown says why the numbers are not known; empty if they are.
	Unknown string
	// Pending: the members were asked a moment ago, and not all of them have answered.
	Pending bool
}

// Asking tells whether an answer is still to come.
func (r *Room) Asking() bool { return r != nil && r.Pending }

// Short tells whether the items don't fit.
func (r *Room) Short() bool { return r != nil && !r.Pending && r.Unknown == "" && r.Leaving > r.Free }

func (o *Observed) podExists(ordinal int32) bool { return slices.Contains(o.Pods, ordinal) }

// memberExists tells whether the pod of the claim's member still exists. A pod never uses an aside
// claim.
func (o *Observed) memberExists(c *claim.Claim) bool { return !c.Aside && o.podExists(c.Ordinal) }

// drainerAtWork tells whether a drainer of the claim runs or has succeeded.
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

// running tells whether the Job's pod may be at work. A Job counts as failed only when its pods
// have ended.
func (j *Job) running() bool { return j.State == JobActive || j.Deleting && j.State != JobFailed }

// mayRun tells whether a pod of the Job may be at work, now or later.
func (j *Job) mayRun() bool { return j.running() || j.PodKept && j.retryable() }
