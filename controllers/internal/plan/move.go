package plan

import (
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/controllers/internal/ring"
)

// MovePhase is the state of a member whose items have to be moved.
type MovePhase string

// The states of such a member.
const (
	MoveWaits  MovePhase = "Waiting"
	MoveRuns   MovePhase = "Moving"
	MoveFailed MovePhase = "Failed"
)

// MoveState is the state of one member whose items have to be moved.
type MoveState struct {
	Claim   claim.Claim
	Phase   MovePhase
	Reason  string
	Message string
	// Job moves them; nil if there is none.
	Job *Job
	// RetryAt is as in DrainState.
	RetryAt time.Time
}

// misplaced tells whether the claim's member may have items that clients look for elsewhere. A
// claim that is being deleted is drained instead. A member that has the leaving mark and is still
// on the clients' list counts like the others while it is ready.
func (o *Observed) misplaced(c *claim.Claim) bool {
	runs := c.LeavingSince.IsZero() || c.Ordinal < o.StatefulSet.Replicas && slices.Contains(o.Ready, c.Ordinal)
	return o.moveDue(&o.Record, c) && c.Ordinal < o.Record.Ring.Size && runs && !c.Aside && !c.Deleting && !o.isLost(c.Ordinal)
}

// moveDue tells whether the claim's member had items when a ring of the record last
// moved keys, and they were not moved since.
func (o *Observed) moveDue(r *ring.Record, c *claim.Claim) bool {
	return !o.Cluster.MovesOff && c.Moved < r.Serial && c.Ordinal < r.From.Size
}

// moving tells whether items have to be moved, a move may still be moving some, or routers look for
// items at the old owners. A move that was not told to begin moves nothing.
func (o *Observed) moving() bool {
	return o.routersChange() || slices.ContainsFunc(o.Drainers, Drainer.moves) || slices.ContainsFunc(o.Moves, func(j Job) bool { return j.unfinished() && (!j.Waits || j.State == JobComplete) }) ||
		slices.ContainsFunc(o.Claims, func(c claim.Claim) bool { return o.misplaced(&c) })
}

// moveRuns tells whether a move's Job, or a mover's pod whose Job is gone, may still run or wait.
func (o *Observed) moveRuns() bool {
	return slices.ContainsFunc(o.Drainers, Drainer.mover) || slices.ContainsFunc(o.Moves, Job.unfinished)
}

// unfinished tells whether the Job of a move may still run, or is complete and about to be deleted.
func (j Job) unfinished() bool { return j.State != JobFailed || j.Deleting || j.mayRun() }

// moves tells whether a move's drainer was told to begin.
func (d Drainer) moves() bool { return d.mover() && !d.Waits }

// moveOf returns the Job that moves the items of the claim's member, or nil.
func (o *Observed) moveOf(c *claim.Claim) *Job {
	i := slices.IndexFunc(o.Moves, func(j Job) bool { return j.ClaimUID == c.UID })
	if i < 0 {
		return nil
	}
	return &o.Moves[i]
}

// beingMoved tells whether the claim's member has a move's Job, or a mover's pod whose Job is gone.
func (o *Observed) beingMoved(c *claim.Claim) bool {
	return o.moveOf(c) != nil || slices.Contains(o.ClaimsWithDrainerPod, c.UID) ||
		slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.mover() && d.ClaimUID == c.UID })
}

// moverSlots is how many more moves may begin, besides those that run and still find items.
func (o *Observed) moverSlots() int {
	slots := mostMovers
	for i := range o.Moves {
		if j := &o.Moves[i]; j.running() && !o.moverSettles(j.ClaimUID) {
			slots--
		}
	}
	return slots
}

// movesByOtherRing tells whether a move by another ring runs, or may start a pod. Such a move may
// give items to members that are moved already.
func (o *Observed) movesByOtherRing(target string) bool {
	return slices.ContainsFunc(o.Drainers, func(d Drainer) bool { return d.moves() && d.Target != target }) ||
		slices.ContainsFunc(o.Moves, func(j Job) bool { return j.Target != target && j.mayRun() && !j.Waits })
}

// sizeWhileMoving returns the size that moves allow if the given size is wanted. While items have
// to be moved, no member of the ring leaves and none joins. All members may stop together (size 0),
// because each returns with the items that it has.
func (o *Observed) sizeWhileMoving(wanted int32) int32 {
	if wanted == 0 || !o.moving() {
		return wanted
	}
	return max(min(o.Record.Ring.Size, o.MostMembers()), min(wanted, o.staying()))
}

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

// move gives items to the members where clients look for them, member by member.
func (p *Plan) move(o *Observed) {
	if p.Replicas == 0 {
		p.endMoves(o, func(*Job) bool { return true }, "the cluster hibernates")
		return
	}
	idle := func(j *Job) bool {
		c := o.claim(j.ClaimUID)
		return c == nil || !o.misplaced(c) && !o.keepsMover(c, j)
	}
	p.endMoves(o, idle, "its member has nothing to move")
	for i := range o.Moves {
		if j := &o.Moves[i]; o.waitsForReturn() != "" && j.mayRun() && !j.Waits && !idle(j) {
			p.deleteJob(j, o.waitsForReturn())
		}
	}
	slots := o.moverSlots()
	p.moveLeaving(o, &slots)
	if p.Prepares { // clients still use the ring before
		p.prepareMoves(o, slots)
		return
	}
	p.wakeForLost(o)
	for i := range o.Claims {
		if c := &o.Claims[i]; o.misplaced(c) {
			p.Moves = append(p.Moves, p.moveMember(o, c, &slots))
		}
	}
}

// wakeForLost asks for a plan at the time when a member that is to leave counts as lost.
func (p *Plan) wakeForLost(o *Observed) {
	if p.SizeBlocked != BlockedByMove {
		return
	}
	for i := o.Cluster.Size; i < o.Record.Ring.Size; i++ {
		if at, away := o.lostAt(i); o.dispensable(i) && away && at.After(o.Now) {
			p.wakeAt(at)
		}
	}
}

func (p *Plan) endMoves(o *Observed, which func(*Job) bool, why string) {
	for i := range o.Moves {
		j := &o.Moves[i]
		switch c := o.claim(j.ClaimUID); {
		case !which(j) || j.Deleting:
		case c != nil && o.movesLeaving(j):
			moved, why := o.moved(c, j)
			p.add(action.DeleteJob{Name: j.Name, UID: j.UID, ClaimUID: j.ClaimUID, Reason: "its member leaves now", Claim: c.Ref(), Moved: moved, NotMoved: why})
		default:
			p.deleteJob(j, why)
		}
	}
}

// moveMember decides about a member whose items have to be moved, and withdraws steps that would be
// refused now.
func (p *Plan) moveMember(o *Observed, c *claim.Claim, slots *int) MoveState {
	first, before := len(p.Actions), *slots
	state := p.decideMove(o, c, slots)
	if len(p.Actions) == first {
		return state
	}
	why, is := p.withdrawRefused(o, c, first)
	if !is {
		return state
	}
	*slots, state.RetryAt = before, why.Until
	return state.is(MoveFailed, why.reason(), why.message())
}

func (p *Plan) decideMove(o *Observed, c *claim.Claim, slots *int) MoveState {
	job := o.moveOf(c)
	state := MoveState{Claim: *c, Job: job}
	switch {
	case c.MoveRequest == claim.Skip:
		p.add(action.RecordMoved{Claim: c.Ref(), Serial: o.Record.Serial, Target: o.Record.Target()})
		return state.is(MoveWaits, InTurn, "a person leaves its items where they are")
	case job != nil:
		return p.followMove(o, c, job, state)
	}
	switch why := p.allMovesWait(o); {
	case why != "":
		return state.is(MoveWaits, cachev1alpha1.ReasonMoveWaits, why)
	case *slots <= 0 || o.beingMoved(c):
		return state.is(MoveWaits, InTurn, "other members are moved first")
	}
	*slots--
	p.add(action.CreateMove{Claim: c.Ref(), Target: o.target(), Members: o.Record.Ring.Size, Lost: o.lost(), Leases: p.leases(o)})
	if c.MoveRequest == claim.Retry {
		p.add(action.ClearMoveRetry{Claim: c.Ref()})
	}
	return state.is(MoveRuns, "", "")
}

// moveWaits tells what a move by that ring waits for; empty if the move may begin. The plan asks
// this, and MayMove asks it about live state.
func (o *Observed) moveWaits(target string) string {
	switch job, lingering := o.runningDrain(), o.lingeringDrainer(); {
	case o.StatefulSet.Replicas < o.Record.Ring.Size:
		return fmt.Sprintf("the StatefulSet must have %d members first", o.Record.Ring.Size)
	case job != nil:
		return fmt.Sprintf("Job %s drains first", job.Name)
	case lingering != "":
		return fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", lingering)
	case o.movesByOtherRing(target):
		return "the pod of an earlier move is still there"
	}
	return o.waitsForReturn()
}

// allMovesWait tells what every move waits for: what moveWaits says,
// drains that come first, and members that aren't ready.
func (p *Plan) allMovesWait(o *Observed) string {
	for i := range p.Drains {
		d := &p.Drains[i]
		if d.Phase != Draining && o.obstructed(&d.Claim) {
			continue
		}
		// A member of the ring that has the leaving mark leaves when all items are moved.
		left := d.Claim.Aside || d.Claim.Ordinal >= min(p.Replicas, o.Record.Ring.Size)
		soon := d.Phase == Waiting && !o.leasesMayBeThere() && p.Replicas == o.Record.Ring.Size || d.Phase == Releasing
		onItsWay := d.Phase == Draining || left && !o.drainedAfterMove(&d.Claim) && soon
		if onItsWay {
			return fmt.Sprintf("claim %s is drained first", d.Claim.Name)
		}
	}
	if why := o.moveWaits(o.target()); why != "" {
		return why
	}
	if why := p.leasesWait(o); why != "" {
		return why
	}
	lost := o.lost()
	for i := range o.Record.Ring.Size {
		if !slices.Contains(o.Ready, i) && !slices.Contains(lost, i) {
			return fmt.Sprintf("member %d is not ready", i)
		}
	}
	return ""
}

// followMove decides about a member that has a Job.
func (p *Plan) followMove(o *Observed, c *claim.Claim, job *Job, state MoveState) MoveState {
	switch {
	case job.Deleting:
		return state.is(MoveWaits, InTurn, "an earlier Job is being deleted")
	case job.mayRun() && !job.Waits && o.waitsForReturn() != "":
		return state.is(MoveWaits, InTurn, o.waitsForReturn())
	case job.Target != o.target():
		p.deleteJob(job, "the ring has changed, or a member is lost")
		return state.is(MoveWaits, InTurn, "the clients' list has changed, or a member is lost: the move starts again")
	case job.State == JobActive && job.replaced(c.MoveRequest == claim.Retry) != "":
		why := job.replaced(c.MoveRequest == claim.Retry)
		p.deleteJob(job, why)
		if c.MoveRequest == claim.Retry {
			p.add(action.ClearMoveRetry{Claim: c.Ref()})
		}
		return state.is(MoveWaits, InTurn, "the move starts anew when its Job is gone: "+why)
	case job.State == JobActive:
		if c.MoveRequest == claim.Retry {
			p.add(action.ClearMoveRetry{Claim: c.Ref()}) // the retry has begun
		}
		return state.is(MoveRuns, "", "")
	}
	invalid := job.ReceiptErr
	if invalid == nil {
		invalid = job.Receipt.AddsUp(ring.Source(c.UID, job.Target))
	}
	switch {
	case job.State == JobComplete && invalid == nil:
		// The next plan finds nothing to move, and deletes the Job.
		p.add(action.RecordMoved{Claim: c.Ref(), Serial: o.Record.Serial, Target: job.Target, Receipt: job.Receipt})
		return state.is(MoveRuns, "", "")
	case c.MoveRequest == claim.Retry:
		p.add(action.DeleteJob{Name: job.Name, UID: job.UID, ClaimUID: job.ClaimUID, Reason: "a person asked for a retry"}, action.ClearMoveRetry{Claim: c.Ref()})
		return state.is(MoveWaits, InTurn, "the retry starts when the failed Job is gone")
	}
	f, again := p.tryAgain(o, c, job, invalid)
	if again {
		return state.is(MoveWaits, Retrying, "the next attempt starts when the failed Job is gone")
	}
	state.RetryAt = f.retryAt
	return state.is(MoveFailed, f.reason, f.message+"; "+moveWayOut)
}

const moveWayOut = "its items stay where they are: see the Job's log, then annotate the claim with " +
	"cache.example.com/move=retry, or =skip to leave them there; routing.moves: Off ends all moves"

func (s MoveState) is(phase MovePhase, reason, message string) MoveState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}
