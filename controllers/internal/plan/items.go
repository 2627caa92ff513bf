package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Which members may have items that clients look for elsewhere, and what moves items now.

// misplaced tells whether the claim's member may have items that clients look for elsewhere. A
// claim that is being deleted is drained instead. A member that has the leaving mark and is still
// on the clients' list counts like the others while it is ready.
func (o *Observed) misplaced(c *claims.Claim) bool {
	runs := c.LeavingSince.IsZero() || c.Ordinal < o.StatefulSet.Replicas && slices.Contains(o.Ready, c.Ordinal)
	return o.moveDue(&o.Record, c) && c.Ordinal < o.Record.Ring.Size && runs && !c.Aside && !c.Deleting && !o.isLost(c.Ordinal)
}

// anyMisplaced tells whether any member is misplaced.
func (o *Observed) anyMisplaced() bool {
	return slices.ContainsFunc(o.Claims, func(c claims.Claim) bool { return o.misplaced(&c) })
}

// moveDue tells whether the claim's member had items when a ring of the record last
// moved keys, and they were not moved since.
func (o *Observed) moveDue(r *ring.Record, c *claims.Claim) bool {
	return !o.Cluster.MovesOff && c.Moved < r.Serial && c.Ordinal < r.From.Size
}

// moving tells whether items have to be moved, a move may still be moving some, or routers look for
// items at the old owners. A move that was not told to begin moves nothing.
func (o *Observed) moving() bool {
	return o.routersChange() || slices.ContainsFunc(o.Drainers, moves) || slices.ContainsFunc(o.Moves, func(j claims.Job) bool { return unfinished(j) && (!j.Waits || j.State == claims.JobComplete) }) ||
		o.anyMisplaced()
}

// moveRuns tells whether a move's Job, or a mover's pod whose Job is gone, may still run or wait.
func (o *Observed) moveRuns() bool {
	return slices.ContainsFunc(o.Drainers, claims.Drainer.Mover) || slices.ContainsFunc(o.Moves, unfinished)
}

// unfinished tells whether the Job of a move may still run, or is complete and about to be deleted.
func unfinished(j claims.Job) bool { return j.State != claims.JobFailed || j.Deleting || j.MayRun() }

// moves tells whether a move's drainer was told to begin.
func moves(d claims.Drainer) bool { return d.Mover() && !d.Waits }

// movesNow names the drain that is at work, or the move that was told to begin; empty if there is
// none.
func (o *Observed) movesNow() string {
	if job := o.RunningDrain(); job != nil {
		return "Job " + job.Name
	}
	if pod := o.LingeringDrainer(); pod != "" {
		return "drainer " + pod
	}
	for i := range o.Moves {
		if j := &o.Moves[i]; j.MayRun() && !j.Waits {
			return "Job " + j.Name
		}
	}
	if i := slices.IndexFunc(o.Drainers, moves); i >= 0 {
		return "drainer " + o.Drainers[i].Pod
	}
	return ""
}

// movesByOtherRing tells whether a move by another ring runs, or may start a pod. Such a move may
// give items to members that are moved already.
func (o *Observed) movesByOtherRing(target string) bool {
	return slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return moves(d) && d.Target != target }) ||
		slices.ContainsFunc(o.Moves, func(j claims.Job) bool { return j.Target != target && j.MayRun() && !j.Waits })
}

// moveOf returns the Job that moves the items of the claim's member, or nil.
func (o *Observed) moveOf(c *claims.Claim) *claims.Job {
	i := slices.IndexFunc(o.Moves, func(j claims.Job) bool { return j.ClaimUID == c.UID })
	if i < 0 {
		return nil
	}
	return &o.Moves[i]
}

// beingMoved tells whether the claim's member has a move's Job, or a mover's pod whose Job is gone.
func (o *Observed) beingMoved(c *claims.Claim) bool {
	return o.moveOf(c) != nil || slices.Contains(o.ClaimsWithDrainerPod, c.UID) ||
		slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return d.Mover() && d.ClaimUID == c.UID })
}

// mostMovers is how many members' items are moved at once, leaving and staying members together.
// spec.drain.parallelism does not count here: a mover takes less than a second for most caches, or
// waits for clients.
const mostMovers = 8

// moverSlots is how many more moves may begin, besides those that run and still find items.
func (o *Observed) moverSlots() int {
	slots := mostMovers
	for i := range o.Moves {
		if j := &o.Moves[i]; j.Running() && !o.moverSettles(j.ClaimUID) {
			slots--
		}
	}
	return slots
}

// moverSettles tells whether the mover of the claim's leaving member has found nothing more.
func (o *Observed) moverSettles(claim types.UID) bool {
	return slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == claim && d.Settles })
}

// moverRuns tells whether the pod of the leaving member's mover has started.
func (o *Observed) moverRuns(c *claims.Claim) bool {
	return slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return d.Mover() && d.ClaimUID == c.UID && d.Running })
}
