package plan

import (
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
)

// A scale-down is announced first: the marks are written, movers are prepared (told.go), and the
// clients' list names only the members that stay. The leaving members keep running meanwhile. A
// mover (drainer move) gives their items to the owners while clients still find them. It ends when
// no client calls a leaving member any more, or when routing.patience is over. Only then does the
// StatefulSet shrink, and the volumes are drained as usual. The drain adds what is left on them,
// which usually is nothing.
//
//	marked ──movers run──▶ announced ──they begin──▶ moved ──they have ended──▶ departed ──▶ drained (volumes.go)
//	   │                       │                       │
//	   └───────────────────────┴───────────────────────┴── anything goes wrong: departed at once
//
// The move is tried once for each leaving member, and its Job is the only record of it. A failure
// costs hits and no items, because the drain follows in any case. Leaving members leave together,
// when the last one has been moved.

// moverStartsWithin bounds how long a leaving member keeps running without a mover at work.
const moverStartsWithin = time.Minute

// mayMoveLive tells whether the items of a leaving member may be given to their owners while the
// member runs. They may not if a person holds or skips its drain, if the member is wanted again and
// no router looks for items there, or if its items are older than those that are moved first. The
// plan asks this, and MayMove asks it about live state.
func (o *Observed) mayMoveLive(c *claims.Claim) bool {
	older := o.drainedAfterMove(c) && o.anyMisplaced()
	wanted := o.Cluster.Size > c.Ordinal && !o.routersAskOldOwners()
	return o.isLeaving(c) && 0 < o.Cluster.Size && !wanted && o.Cluster.ToDrain(c) && o.Cluster.Patience > 0 &&
		!o.Cluster.MovesOff && !c.Deleting && !c.KeptByAPerson() && c.Receipt == nil && !older
}

// waitsForMover tells whether the cluster waits for the mover of this leaving member, because the
// mover may start soon or is at work.
func (o *Observed) waitsForMover(c *claims.Claim) bool {
	if !o.mayMoveLive(c) || !slices.Contains(o.Ready, c.Ordinal) || o.overdue(c) {
		return false
	}
	soon := o.toldJustNow(c) || o.routersAskOldOwners()
	switch job := o.moveOf(c); {
	case job == nil:
		return soon
	case job.Deleting || job.State != claims.JobActive || job.Target != o.target():
		return false
	}
	return soon || o.moverRuns(c)
}

// toldJustNow tells whether the member was told to leave less than moverStartsWithin ago. Any
// client may have written the mark, so a time in the future does not count as recent.
func (o *Observed) toldJustNow(c *claims.Claim) bool {
	age := o.Now.Sub(c.LeavingSince)
	return c.MarkPending() || -moverStartsWithin < age && age < moverStartsWithin
}

// stopsWaiting is when the member leaves at the latest. A mover that ends by itself has ended by
// then; a mover whose node is gone would seem to run forever.
func (o *Observed) stopsWaiting(c *claims.Claim) time.Time {
	return c.LeavingSince.Add(2*moverStartsWithin + o.Cluster.MoveDeadline)
}

// overdue tells whether the member should have left by now.
func (o *Observed) overdue(c *claims.Claim) bool {
	_, told := c.LeavingAt()
	return told && !o.stopsWaiting(c).After(o.Now)
}
