package plan

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
)

// view has the facts, and all that follows from them. look (look.go) makes the view, and no decision changes
// it.
type view struct {
	*Observed
	// members has an entry for each claim, in their order.
	members []member
	// lowest is the claim with a leaving mark that has the lowest ordinal; nil if there is none.
	lowest *claims.Claim
	// staying is how many members the StatefulSet has, without those that have the leaving mark and
	// are off the clients' list.
	staying int32

	// drain is the Job of a drain that may be at work, lingering the pod of a drain whose Job is gone.
	// drains: there is one of them.
	drain     *claims.Job
	lingering string
	drains    bool
	// returns says that drains and moves wait for a member that returns empty; empty if there is none.
	returns string
	// moverExists: a move's Job, or a mover's pod whose Job is gone, may still run or wait. begun: a mover's
	// pod was told to begin.
	moverExists, begun bool
	// movesNow names the drain that is at work, or the move that was told to begin; empty if there is
	// none.
	movesNow string
	// warms names the Job of a warming that may be at work; empty if there is none.
	warms string
	// misplaced: a member may have items that clients look for elsewhere. moving: one may have such items, a move
	// may still be moving some, or routers look for items at the old owners: the size and the list wait. A move that
	// was not told to begin moves nothing.
	misplaced, moving bool
	// stuck says which drain, move or copy has been stuck for stuckFor; empty if none has. stuckAt is when the next
	// one will have been; zero for never.
	stuck   string
	stuckAt time.Time
	// stepping: a member is out of the ring for its restart, or is about to be: the size and the list wait.
	stepping bool
	// gone: the member that is out has been away for lostAfter, and another size is wanted, which doesn't
	// wait for the member. goneAt is when the member will be gone; zero for never.
	gone   bool
	goneAt time.Time

	// lost has the members of the ring that are to leave and are lost, in order. nextLost is when the
	// next one will be lost; zero for never.
	lost     []int32
	nextLost time.Time
	// target names the ring by which items are moved now, and the lost members.
	target string

	routers
}

// member has all that follows from the facts about a claim, and about its member.
type member struct {
	*claims.Claim
	// ready: the member serves.
	ready bool
	// mover is the Job that moves the member's items; nil if there is none. hasMover: there is one, or a
	// mover's pod whose Job is gone.
	mover    *claims.Job
	hasMover bool
	// The state of the mover's pod, as in claims.Drainer.
	running, prepared, settles bool
	// afterMove: the volume is drained after the moves (order.go).
	afterMove bool
	// misplaced: the member may have items that clients look for elsewhere. A claim that is being deleted is
	// drained instead, unless its member is out of the ring and serves. A member that has the leaving mark
	// and is still on the clients' list counts like the others while it is ready.
	misplaced bool
	// leaving: the member has the leaving mark, is off the clients' list, and still exists.
	leaving
}

// leaving has all that follows from the facts about a member that leaves.
type leaving struct {
	// isLeaving: the member has the leaving mark, is off the clients' list, and still exists.
	isLeaving bool
	// by is when the member leaves at the latest. A mover that ends by itself has ended by then; a mover
	// whose node is gone would seem to run forever. overdue: the member should have left by now.
	by      time.Time
	overdue bool
	// live: the items of the member may be given to their owners while it runs. That is not allowed if a
	// person holds or skips its drain, if the member is wanted again and no router looks for items there, or
	// if its items are older than those that are moved first.
	live bool
	// hasItems: a mover may find items; false if the mover only waits for clients or has ended for good, or
	// if no mover can be at work.
	hasItems bool
	// waits: the cluster waits for the member's mover, which may start soon or is at work.
	waits bool
}

// holder is the word for what holds a member's items.
func (v *view) holder() string { return (&claims.Claim{InPod: v.Cluster.InPods}).Kind() }

// ringStays tells whether the size and the list wait for moves, or for a member that is out.
func (v *view) ringStays() bool { return v.moving || v.stepping }

// of returns what follows from the facts about the claim of this UID, or nil.
func (v *view) of(uid types.UID) *member {
	i := slices.IndexFunc(v.members, func(m member) bool { return m.UID == uid })
	if i < 0 {
		return nil
	}
	return &v.members[i]
}

// toMove tells whether items of a member that stays have to be moved by the ring in the record.
func (m *member) toMove() bool { return m.misplaced && m.MoveRequest != claims.Skip }

// allReady tells whether all members of the ring serve.
func (v *view) allReady() bool {
	for i := range v.Record.Ring.Size {
		if !slices.Contains(v.Ready, i) {
			return false
		}
	}
	return true
}

// refusedIf refuses for this reason, if there is one.
func refusedIf(why string) error {
	if why == "" {
		return nil
	}
	return errors.New(why)
}
