package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Cluster has the wishes of the spec.
type Cluster struct {
	// Size wanted; 0 hibernates.
	Size int32
	// Terms of the claims: policy, and whether the Memcached or its namespace is being deleted.
	claims.Terms
	// WaitForRoom: spec.drain.onShortage is Wait.
	WaitForRoom bool
	// Parallelism is how many drains may run at once; at least 1.
	Parallelism int32
	// Orphan: the members stay, without a Memcached.
	Orphan bool
	// DeleteClaims: spec.drain.whenDeleted is Delete.
	DeleteClaims bool
	// Plain: the cluster has no storage.
	Plain bool
	// InPods: the members have no volumes. Their pods hold their items (claims.Claim.InPod).
	InPods bool
	// StableAddresses: each member has a Service of its own.
	StableAddresses bool
	// Discovery: the members are told of the clients' list.
	Discovery bool
	// Routers: the spec asks for routers, or some of their objects still exist.
	Routers bool
	// Exclusive: only routers call the members.
	Exclusive bool
	// Moved: members step out of the ring before they are replaced. StepsOutForEvictions: and before they are evicted.
	Moved, StepsOutForEvictions bool
	// Finalizer: the Memcached has our finalizer.
	Finalizer bool
	// Ring has the spec's ring; the plan sets its Size. MovesOff: spec.routing.moves is Off.
	Ring     ring.Ring
	MovesOff bool
	// Patience is how long a leaving member waits for its last client. With 0 the member doesn't wait, and
	// its items are drained when it is gone.
	Patience time.Duration
	// MoveDeadline is how long a leaving member's mover may be at work, patience included.
	MoveDeadline time.Duration
	// VolumeSize is the wanted size of each member's volume, in bytes. A volume must be larger than Memory,
	// in bytes.
	VolumeSize, Memory int64
	// VolumeSizeGiven: spec.storage.size gives VolumeSize. Otherwise VolumeSize follows
	// spec.memory.
	VolumeSizeGiven bool
}

// StatefulSet of the members.
type StatefulSet struct {
	Exists   bool
	UID      types.UID
	Deleting bool
	Replicas int32
	// Partition: members with lower ordinals keep their template.
	Partition int32
	// Seen: Kubernetes has seen the present template. Outdated has the members that don't have that template, in
	// order.
	Seen     bool
	Outdated []int32
}

// Observed is everything that a plan depends on. No decision changes it.
type Observed struct {
	// Facts are about claims, and about the users of their volumes.
	claims.Facts
	Cluster     Cluster
	StatefulSet StatefulSet
	// Ready has the ordinals of the members that serve; without storage as many, from 0.
	Ready []int32
	// LastReady is when the last of the ready members became ready.
	LastReady time.Time
	// Away has the members that the StatefulSet should have and that aren't ready.
	Away []Away
	// Moves are the Jobs that move items.
	Moves []claims.Job
	// Warm is what spec.warmFrom asks for; nil if the spec has none. Warms are the Jobs that copy from a source.
	Warm  *Warm
	Warms []claims.Job
	// ListSize is how many members are on the clients' list now, and Record what is known about its
	// rings: see ReadList.
	ListSize int32
	Record   ring.Record
	// MemoryRuns: at least one member that has Cluster.Memory is ready.
	MemoryRuns bool
	// MemberPods are the pods of members that are told of the list, RouterPods those of routers
	// that are told of their table.
	MemberPods, RouterPods []action.PodRef
	// Table is the routers' table; nil if it can't be read, or if there are no routers.
	Table *ring.Table
	// MemberServices are the members' own Services that the cluster controls.
	MemberServices []MemberService
	// Room is for a scale-down that is about to begin; nil if none is. StepRoom is for the next member that
	// steps out.
	Room, StepRoom *Room
	// Tellable has the members whose supervisors can be told to start empty, and Empty those that have started empty
	// since the member stepped out of the present ring.
	Tellable, Empty []int32
	// Aside has the members that are told not to be ready, and those that may not know yet that they may be
	// ready again.
	Aside []int32
	// Cordoned has the members on nodes that take no pods. NodesUnknown says why the nodes are not known;
	// empty if they are. NodesPending: the nodes will be known in a moment.
	Cordoned     []Cordoned
	NodesPending bool
	NodesUnknown string
	// Stuck has the drains, moves and copies that neither go on nor end by themselves.
	Stuck []Stuck
}

// Stuck is a drain, a move or a copy whose drainer does not start, or does not end although it was told to: What
// says so. Since is when the drainer should have.
type Stuck struct {
	What  string
	Since time.Time
}

// Cordoned is a member on a node that takes no pods, and since when, as far as the operator's process knows.
type Cordoned struct {
	Ordinal int32
	Node    string
	Since   time.Time
}

// Away is a member that isn't ready, and since when; zero if that is not known: then it has been away for long.
type Away struct {
	Ordinal int32
	Since   time.Time
}

// MemberService is the Service of one member.
type MemberService struct {
	Ordinal int32
	UID     types.UID
	// Unlisted is when the operator first saw that the member is neither on the clients' list nor
	// running; zero while the member is either.
	Unlisted time.Time
}

// Wanted is the ring when the cluster has the wanted size.
func (o *Observed) Wanted() ring.Ring { return o.Cluster.Ring.Of(o.Cluster.Size) }

// Room is the size of the items that members give away (Leaving), and of those that other members would evict
// for them (Evicted), in bytes.
type Room struct {
	Leaving, Evicted int64
	// Paged: evictions are counted in size classes and their pages, otherwise in bytes.
	Paged bool
	// Unknown says why the numbers are not known; empty if they are.
	Unknown string
	// Pending: the members were asked a moment ago, and not all of them have answered.
	Pending bool
}

// Asking tells whether an answer is still to come.
func (r *Room) Asking() bool { return r != nil && r.Pending }

// Short tells whether the items don't fit.
func (r *Room) Short() bool { return r != nil && !r.Pending && r.Unknown == "" && r.Evicted > 0 }

// Says words the numbers; has is the subject and the verb, such as "it has".
func (r *Room) Says(has string) string {
	counted := "bytes"
	if r.Paged {
		counted = "size classes and their pages"
	}
	return fmt.Sprintf("%s %s of items, for which members would evict %s, counted in %s", has, mebibytes(r.Leaving), mebibytes(r.Evicted), counted)
}

// mebibytes rounds up, so that an eviction never reads as 0.
func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", math.Ceil(float64(n)/(1<<20)*10)/10) }

// MostMembers is how many members there can be: as many as are wanted, as the StatefulSet has, or
// as have claims. A Job or the record can't raise the number, because any client may have written
// them.
func (o *Observed) MostMembers() int32 {
	most := max(o.Cluster.Size, o.StatefulSet.Replicas)
	for i := range o.Claims {
		if c := &o.Claims[i]; !c.Aside {
			most = max(most, c.Ordinal+1)
		}
	}
	return min(most, cachev1alpha1.MaxSize)
}

// inOrder has the claims in the order in which they are decided about.
func (o *Observed) inOrder() *Observed {
	return o.having(slices.SortedFunc(slices.Values(o.Claims), func(a, b claims.Claim) int {
		return cmp.Or(cmp.Compare(b.Ordinal, a.Ordinal), cmp.Compare(len(a.Name), len(b.Name))) // its longer name puts an aside claim last
	}))
}

// having is the observation with these claims.
func (o *Observed) having(all []claims.Claim) *Observed {
	then := *o
	then.Claims = all
	return &then
}

// at is the observation with this record.
func (o *Observed) at(r ring.Record) *Observed {
	then := *o
	then.Record = r
	return &then
}
