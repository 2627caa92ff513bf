package plan

import (
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Drains and moves have one total order, and this file is the only place that has it. A drain
// adds items and never replaces any, so newer values have to come first:
//
//  1. The volumes by which clients found items when a ring last moved keys, or later: of members
//     that left with that ring, and of members whose volume was set aside since then. The one that
//     left last comes first.
//  2. The moves of that ring. They wait for the volumes of the first group, unless these wait
//     for members that join: no drain can begin before clients know these, and clients are not
//     told of them before the moves have ended.
//  3. All other volumes, which are older. The one that left last comes first.
//
// A volume waits for those that come before it, and for none that comes after it. So no two wait
// for each other, whatever came first in time. Members that left together have no keys in
// common: their volumes have no order. What waits for a person lets the others pass. A size comes
// last: it waits for what is drained or moved, and nothing of that waits for a wanted size. A claim
// of which the API server refuses a step lets the others pass, too (obstructed.go).
//
// Which of two volumes left last is a number beside the leaving mark, and never a time: two
// replicas of the operator may have different clocks.

// turn is the place of a volume in the order.
type turn struct {
	// afterMove: it is of the third group, otherwise of the first.
	afterMove bool
	left      int64
}

// before tells whether what has this turn is drained before what has the other one.
func (t turn) before(other turn) bool {
	if t.afterMove != other.afterMove {
		return other.afterMove
	}
	return t.left > other.left
}

func (o *Observed) turnOf(c *claim.Claim) turn {
	return turn{afterMove: o.drainedAfterMove(c), left: c.Left}
}

// drainedAfterMove tells whether the claim is of the third group. If a volume was set aside,
// its claim says by which ring clients last stored items on it (claim.Moved). A member that was
// on no ring of the record has nothing that is newer than what the others have.
func (o *Observed) drainedAfterMove(c *claim.Claim) bool {
	switch {
	case c.Unmoved:
		return true
	case c.Aside:
		return c.Moved < o.Record.Serial || c.Ordinal >= max(o.Record.From.Size, o.Record.Ring.Size)
	}
	return c.Ordinal >= o.Record.From.Size
}

// storedBy is the serial of the last ring by which clients stored items on a volume that is set
// aside now; 0 if they have found newer items elsewhere since then.
func (o *Observed) storedBy(c *claim.Claim) int64 {
	if !c.LeavingSince.IsZero() && o.drainedAfterMove(c) {
		return 0
	}
	return o.Record.Serial
}

// returnsEmpty returns the claim of a member that stays, whose claim was deleted and whose volume is
// being set aside; or nil. The member returns with an empty volume. What moves to it meanwhile may be
// older than what the first volume has, which is drained next. So drains and moves that are at
// work are ended, and begin anew in their turn; the claim is handed over when none is at work, and
// none begins before that. A claim that can't be set aside now keeps its member away, so nothing
// moves there meanwhile.
func (o *Observed) returnsEmpty() *claim.Claim {
	i := slices.IndexFunc(o.Claims, func(c claim.Claim) bool {
		return c.LeavingSince.IsZero() && !c.Aside && c.HasVolumeToHandOver() && !c.InUse && c.CanBeSetAside() && !o.obstructed(&c)
	})
	if i < 0 {
		return nil
	}
	return &o.Claims[i]
}

// waitsForReturn tells that drains and moves wait for such a member; empty if there is none.
func (o *Observed) waitsForReturn() string {
	if c := o.returnsEmpty(); c != nil {
		return fmt.Sprintf("claim %s was deleted: its volume is set aside first, since its items may be newer", c.Name)
	}
	return ""
}

// movesNow names what is at work: a drain, or a move that was told to begin; empty if nothing is.
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

// drainsByItself tells whether the volume of a departed member is drained without a deed of a
// person, sooner or later.
func (o *Observed) drainsByItself(c *claim.Claim) bool {
	job := o.jobFor(c.UID)
	switch {
	case !o.toDrain(c), c.KeptByAPerson(), o.stranded(c), o.obstructed(c) && (job == nil || !job.running()):
		return false
	case c.Deleting && !c.CanBeSetAside() && !o.drainGoesOn(c, job):
		return false // its volume can't be mounted any more
	}
	return job == nil || job.running() || job.State == JobComplete || job.mendable()
}

// toDrain tells whether the volume is to be drained when its member has left.
func (o *Observed) toDrain(c *claim.Claim) bool { return o.Cluster.Terms().PolicyFor(c) == claim.Drain }

// NextLeft is the number of the next leaving mark. Anybody may have written those that are there:
// see ring.Last.
func NextLeft(claims []claim.Claim) int64 {
	numbers := make([]int64, 0, len(claims))
	for i := range claims {
		numbers = append(numbers, claims[i].Left)
	}
	return ring.Last(numbers...) + 1
}
