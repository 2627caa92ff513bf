package plan

import (
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Drains and moves have one total order, which only this file defines. A drain adds items and never
// replaces any, so newer values have to come first:
//
//  1. The volumes by which clients found items when a ring last moved keys, or later: those of
//     members that left with that ring, and those that were set aside since then. The volume
//     whose member left last comes first.
//  2. The moves of that ring. They wait for the volumes of the first group, unless these wait
//     for members that join: no drain can begin before clients know the joining members, and
//     clients are not told of them before the moves have ended.
//  3. All other volumes, which are older. The volume whose member left last comes first.
//
// A volume waits for those that come before it, and for none that comes after it. So no two
// volumes wait for each other, in whatever order they became due. Members that left together have
// no keys in common, so their volumes have no order. A drain or a move that waits for a person
// lets the others pass, and so does a claim about which the API server refuses a step
// (obstructed.go). A change of size comes last: it waits for drains and moves, and no drain or
// move waits for a wanted size.
//
// A number beside the leaving mark tells which of two volumes left last. Times can't tell: two
// replicas of the operator may have different clocks.

// turn is the place of a volume in the order.
type turn struct {
	// afterMove: the volume belongs to the third group, otherwise to the first.
	afterMove bool
	left      int64
}

// before tells whether a volume with this turn is drained before a volume with the other turn.
func (t turn) before(other turn) bool {
	if t.afterMove != other.afterMove {
		return other.afterMove
	}
	return t.left > other.left
}

func (o *Observed) turnOf(c *claim.Claim) turn {
	return turn{afterMove: o.drainedAfterMove(c), left: c.Left}
}

// drainedAfterMove tells whether the claim's volume belongs to the third group. If a volume was set
// aside, its claim says by which ring clients last stored items on it (claim.Moved). A member that
// was on no ring of the record has nothing that is newer than what the others have.
func (o *Observed) drainedAfterMove(c *claim.Claim) bool {
	switch {
	case c.Unmoved:
		return true
	case c.Aside:
		return c.Moved < o.Record.Serial || c.Ordinal >= max(o.Record.From.Size, o.Record.Ring.Size)
	}
	return c.Ordinal >= o.Record.From.Size
}

// storedBy is the serial of the last ring by which clients stored items on a volume that is about
// to be set aside; 0 if they have found newer items elsewhere since then.
func (o *Observed) storedBy(c *claim.Claim) int64 {
	if !c.LeavingSince.IsZero() && o.drainedAfterMove(c) {
		return 0
	}
	return o.Record.Serial
}

// returnsEmpty returns the claim of a member that stays, whose claim was deleted and whose volume
// is being set aside; or nil. The member returns with an empty volume. Items that a drain or a move
// gives to it may be older than those on its first volume, which is drained next. So drains and
// moves that are at work are ended, and begin again in their turn; the claim is handed over when
// none is at work, and none begins before that. A claim that can't be set aside now keeps its
// member away, so nothing moves there meanwhile.
func (o *Observed) returnsEmpty() *claim.Claim {
	i := slices.IndexFunc(o.Claims, func(c claim.Claim) bool {
		return c.LeavingSince.IsZero() && !c.Aside && c.HasVolumeToHandOver() && !c.InUse && c.CanBeSetAside() && !o.obstructed(&c)
	})
	if i < 0 {
		return nil
	}
	return &o.Claims[i]
}

// waitsForReturn says that drains and moves wait for a member that returns empty (returnsEmpty); it
// is empty if there is no such member.
func (o *Observed) waitsForReturn() string {
	if c := o.returnsEmpty(); c != nil {
		return fmt.Sprintf("claim %s was deleted: its volume is set aside first, since its items may be newer", c.Name)
	}
	return ""
}

// movesNow names the drain that is at work, or the move that was told to begin; empty if there is
// none.
func (o *Observed) movesNow() string {
	if job := o.runningDrain(); job != nil {
		return "Job " + job.Name
	}
	if pod := o.lingeringDrainer(); pod != "" {
		return "drainer " + pod
	}
	for i := range o.Moves {
		if j := &o.Moves[i]; j.mayRun() && !j.Waits {
			return "Job " + j.Name
		}
	}
	if i := slices.IndexFunc(o.Drainers, Drainer.moves); i >= 0 {
		return "drainer " + o.Drainers[i].Pod
	}
	return ""
}

// earlierDrainDue tells whether a volume that comes before this one is about to be drained, or
// will be tried again.
func (o *Observed) earlierDrainDue(c *claim.Claim) bool {
	return slices.ContainsFunc(o.Claims, func(d claim.Claim) bool {
		return !d.LeavingSince.IsZero() && o.turnOf(&d).before(o.turnOf(c)) && d.Volume != "" && d.Volume != c.Volume && d.Receipt == nil && o.drainsByItself(&d)
	})
}

// drainsByItself tells whether the volume of a departed member will be drained without action by a
// person.
func (o *Observed) drainsByItself(c *claim.Claim) bool {
	job := o.jobFor(c.UID)
	switch {
	case !o.toDrain(c), c.KeptByAPerson(), o.stranded(c), o.obstructed(c) && (job == nil || !job.running()):
		return false
	case c.Deleting && !c.CanBeSetAside() && !o.drainContinues(c, job):
		return false // the volume can't be mounted any more
	}
	return job == nil || job.running() || job.State == JobComplete || job.retryable()
}

// toDrain tells whether the claim's volume is to be drained after its member has left.
func (o *Observed) toDrain(c *claim.Claim) bool { return o.Cluster.Terms().PolicyFor(c) == claim.Drain }

// NextLeft is the number of the next leaving mark. Any client may have written the present numbers,
// so ring.Last bounds them.
func NextLeft(claims []claim.Claim) int64 {
	numbers := make([]int64, 0, len(claims))
	for i := range claims {
		numbers = append(numbers, claims[i].Left)
	}
	return ring.Last(numbers...) + 1
}
