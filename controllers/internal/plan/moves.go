package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
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
	Claim   claims.Claim
	Phase   MovePhase
	Reason  string
	Message string
	// Job moves them; nil if there is none.
	Job *claims.Job
	// RetryAt is as in claims.DrainState.
	RetryAt time.Time
}

func (s MoveState) is(phase MovePhase, reason, message string) MoveState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}

// movers decides which movers work. A mover gives one member's items to the members where clients look for
// them.
type movers struct {
	*view
	size *Size
	told *Told
	// wait tells what every move waits for; empty if a move may begin.
	wait string
	// leases: keys are moved under their leases.
	leases bool
	// slots is how many more moves may begin.
	slots int
	claims.Work
}

// decideMoves returns the state of each member whose items have to be moved, highest ordinal first.
// drains is the decision about volumes, which come first.
func decideMoves(v *view, size *Size, told *Told, drains []claims.DrainState) (states []MoveState, w claims.Work) {
	m := &movers{view: v, size: size, told: told, leases: told.leases(v), slots: moverSlots(v.Observed)}
	if size.Replicas == 0 {
		m.end(func(*claims.Job) bool { return true }, "the cluster hibernates")
		return nil, m.Work
	}
	m.wait = m.allWait(drains)
	m.end(m.idle, "its member has nothing to move")
	m.interrupt()
	m.moveLeaving()
	if !told.Prepares && size.SizeBlocked == BlockedByMove {
		m.WakeAt(v.nextLost)
	}
	for i := range v.members {
		switch c := &v.members[i]; {
		case told.Prepares && c.toMove(): // clients still use the ring before
			states = append(states, m.prepare(c))
		case !told.Prepares && c.misplaced:
			states = append(states, m.member(c))
		}
	}
	return states, m.Work
}

// idle tells whether the Job has nothing left to do. A leaving member's Job is kept while its mover works,
// and afterwards as the record that the move is over, until the member is gone.
func (m *movers) idle(j *claims.Job) bool {
	c := m.of(j.ClaimUID)
	if c == nil {
		return true
	}
	kept := c.isLeaving && (c.waits || !j.MayRun())
	return !c.misplaced && !kept
}

// end deletes these Jobs.
func (m *movers) end(which func(*claims.Job) bool, why string) {
	for i := range m.Moves {
		j := &m.Moves[i]
		switch c := m.Claim(j.ClaimUID); {
		case !which(j) || j.Deleting:
		case c != nil && !c.LeavingSince.IsZero():
			receipt, notMoved := moved(c, j)
			m.Do(action.DeleteJob{Name: j.Name, UID: j.UID, ClaimUID: j.ClaimUID, Reason: "its member leaves now", Claim: c.Ref(), Moved: receipt, NotMoved: notMoved})
		default:
			m.DeleteJob(j, why)
		}
	}
}

// moved returns the receipt of a leaving member's mover that succeeded, or nil and why there is
// none.
func moved(c *claims.Claim, j *claims.Job) (receipt *action.Receipt, why string) {
	switch j.State {
	case claims.JobActive:
		return nil, "the mover had not ended"
	case claims.JobFailed:
		return nil, j.Message
	case claims.JobComplete:
	}
	if err := receiptOf(c, j); err != nil {
		return nil, err.Error()
	}
	return j.Receipt, ""
}

// interrupt ends moves that are at work when a member returns empty.
func (m *movers) interrupt() {
	for i := range m.Moves {
		if j := &m.Moves[i]; m.returns != "" && m.moves(j) && !m.idle(j) {
			m.DeleteJob(j, m.returns)
		}
	}
}

// moves tells whether the Job may be moving items: a prepared one, if a pod of it was told to begin.
func (m *movers) moves(j *claims.Job) bool {
	told := slices.ContainsFunc(m.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == j.ClaimUID && d.Moves() })
	return j.MayRun() && (!j.Waits || told)
}

// moveLeaving starts the movers of leaving members.
func (m *movers) moveLeaving() {
	if m.wait != "" || len(m.lost) > 0 {
		return
	}
	for i := range m.members {
		if c := &m.members[i]; c.InPod && c.waits {
			m.moveAgain(c)
		}
		if c := &m.members[i]; m.size.runsOn(c.Claim) && c.waits && !c.hasMover && m.slots > 0 && !m.refused(c) {
			m.slots--
			m.Do(action.CreateMove{Claim: c.Ref(), Target: m.target, Members: m.Record.Ring.Size, Out: m.Record.Ring.Out, Prepared: m.told.Prepares, Leases: m.leases})
		}
	}
}

// refused tells whether no mover of the member is made now.
func (m *movers) refused(c *member) bool {
	why, is := m.NoJobNow(c.Claim)
	if is {
		m.WakeAt(why.Until)
	}
	return is
}

// prepare starts the mover of a member that stays before clients are told of the ring.
func (m *movers) prepare(c *member) MoveState {
	if !c.hasMover && m.slots > 0 && !m.refused(c) {
		m.slots--
		m.Do(action.CreateMove{Claim: c.Ref(), Target: m.target, Members: m.Record.Ring.Size, Out: m.Record.Ring.Out, Prepared: true})
	}
	state := MoveState{Claim: *c.Claim, Job: c.mover}
	return state.is(MoveWaits, claims.InTurn, "movers are being prepared, then the clients' list changes")
}

// member decides about a member whose items have to be moved, and withdraws steps that would be
// refused now.
func (m *movers) member(c *member) MoveState {
	var w claims.Work
	state := m.decide(c, &w)
	if len(w.Actions) > 0 {
		if o, is := w.Withdraw(&m.Facts, c.Claim); is {
			state.RetryAt = o.RetryAt
			state = state.is(MoveFailed, o.Reason, o.Message)
		}
	}
	if c.mover == nil && state.Phase == MoveRuns {
		m.slots--
	}
	m.Then(w)
	return state
}

func (m *movers) decide(c *member, w *claims.Work) MoveState {
	state := MoveState{Claim: *c.Claim, Job: c.mover}
	switch {
	case c.MoveRequest == claims.Skip:
		w.Do(action.RecordMoved{Claim: c.Ref(), Serial: m.Record.Serial, Target: m.Record.Target()})
		return state.is(MoveWaits, claims.InTurn, "a person leaves its items where they are")
	case c.mover != nil:
		return m.follow(c.Claim, c.mover, state, w)
	case m.wait != "":
		return state.is(MoveWaits, cachev1alpha1.ReasonMoveWaits, m.wait)
	case !c.ready && m.Record.Ring.IsOut(c.Ordinal): // the others don't wait for it
		return state.is(MoveWaits, cachev1alpha1.ReasonMoveWaits, fmt.Sprintf("member %d is not ready", c.Ordinal))
	case m.slots <= 0 || c.hasMover:
		return state.is(MoveWaits, claims.InTurn, "other members are moved first")
	}
	if c.MoveRequest == claims.Retry {
		w.Do(action.ClearMoveRetry{Claim: c.Ref()})
	}
	w.Do(action.CreateMove{Claim: c.Ref(), Target: m.target, Members: m.Record.Ring.Size, Out: m.Record.Ring.Out, Lost: m.lost, Leases: m.leases})
	return state.is(MoveRuns, "", "")
}

// follow decides about a member that has a Job.
func (m *movers) follow(c *claims.Claim, job *claims.Job, state MoveState, w *claims.Work) MoveState {
	switch {
	case job.Deleting:
		return state.is(MoveWaits, claims.InTurn, "an earlier Job is being deleted")
	case m.moves(job) && m.returns != "":
		return state.is(MoveWaits, claims.InTurn, m.returns)
	case job.Target != m.target:
		w.DeleteJob(job, "the ring has changed, or a member is lost")
		return state.is(MoveWaits, claims.InTurn, "the clients' list has changed, or a member is lost: the move starts again")
	}
	a := claims.Attempt{What: "move", Claim: c, Job: job, Retry: c.MoveRequest == claims.Retry, Clear: []action.Action{action.ClearMoveRetry{Claim: c.Ref()}}, WayOut: moveWayOut(c)}
	if m.Record.Ring.IsOut(c.Ordinal) {
		a.WayOut = stepWayOut
	}
	if job.State != claims.JobActive {
		a.Invalid = receiptOf(c, job)
	}
	if job.State == claims.JobComplete && a.Invalid == nil {
		// The next plan finds nothing to move, and deletes the Job.
		w.Do(action.RecordMoved{Claim: c.Ref(), Serial: m.Record.Serial, Target: job.Target, Receipt: job.Receipt})
		return state.is(MoveRuns, "", "")
	}
	o := w.Follow(m.Now, &a)
	state.RetryAt = o.RetryAt
	phase := map[claims.DrainPhase]MovePhase{claims.Draining: MoveRuns, claims.Waiting: MoveWaits, claims.Failed: MoveFailed}[o.Phase]
	return state.is(phase, o.Reason, o.Message)
}

func moveWayOut(c *claims.Claim) string {
	return fmt.Sprintf("its items stay where they are: see the Job's log, then annotate the %s with %s=retry, or =skip to leave them there; "+
		"routing.moves: Off ends all moves", c.Kind(), cachev1alpha1.AnnotationMove)
}

const stepWayOut = "the member stays out of the ring: see the Job's log, then annotate the claim with " +
	cachev1alpha1.AnnotationMove + "=retry, or =skip: then the member starts empty, without the items that are left"

// allWait tells what every move waits for: the reason of moveWaits, drains that come first, leases, and
// members that aren't ready.
func (m *movers) allWait(drains []claims.DrainState) string {
	replicas := m.size.Replicas
	for i := range drains {
		d := &drains[i]
		if d.Claim.InPod || d.Phase != claims.Draining && m.IsObstructed(&d.Claim) {
			continue
		}
		// A member of the ring that has the leaving mark leaves when all items are moved.
		left := d.Claim.Aside || d.Claim.Ordinal >= min(replicas, m.Record.Ring.Size)
		soon := d.Phase == claims.Waiting && !m.stepping && !m.routers.leases && replicas == m.Record.Ring.Size || d.Phase == claims.Releasing
		onItsWay := d.Phase == claims.Draining || left && !m.of(d.Claim.UID).afterMove && soon
		if onItsWay {
			return fmt.Sprintf("claim %s is drained first", d.Claim.Name)
		}
	}
	if why := moveWaits(m.view, m.target); why != "" {
		return why
	}
	if !m.leases { // a mover takes leases itself if routers know them
		m.WakeAfter(m.Now, m.leasesExpire)
		if m.leasesWait != "" {
			return m.leasesWait
		}
	}
	for i := range m.Record.Ring.Size {
		if m.Record.Ring.Has(i) && !slices.Contains(m.Ready, i) && !slices.Contains(m.lost, i) {
			return fmt.Sprintf("member %d is not ready", i)
		}
	}
	return ""
}

// decideBegins tells prepared movers to begin, right after the list was written.
func decideBegins(v *view, size *Size, told *Told) (w claims.Work) {
	if told.Prepares || told.ListSize == 0 || moveWaits(v, v.target) != "" {
		return w
	}
	leases := told.leases(v)
	if !leases {
		w.WakeAfter(v.Now, v.leasesExpire)
		if v.leasesWait != "" {
			return w
		}
	}
	for i := range v.members {
		m := &v.members[i]
		if m.mover == nil || !mayBegin(m.mover, v.target) || !m.misplaced && (!size.runsOn(m.Claim) || !m.waits) {
			continue
		}
		if slices.ContainsFunc(v.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == m.UID && d.Target == v.target && d.Waits }) {
			w.Do(action.BeginMove{Claim: m.Ref(), Target: v.target, Leases: leases})
		}
	}
	return w
}

// mayBegin tells whether the Job is an active, prepared move by that ring.
func mayBegin(j *claims.Job, target string) bool {
	return j.Waits && j.Target == target && j.State == claims.JobActive && !j.Deleting
}

// moverSlots is how many more moves may begin, besides those that run and still find items.
func moverSlots(o *Observed) int {
	slots := mostMovers
	for i := range o.Moves {
		j := &o.Moves[i]
		settles := slices.ContainsFunc(o.Drainers, func(d claims.Drainer) bool { return d.ClaimUID == j.ClaimUID && d.Settles })
		if j.Running() && !settles {
			slots--
		}
	}
	return slots
}

// moveWaits tells what a move by that ring waits for; empty if the move may begin. The plan asks
// this, and MayMove asks it about live state.
func moveWaits(v *view, target string) string {
	// A move by another ring may give items to members that are moved already.
	otherRing := slices.ContainsFunc(v.Drainers, func(d claims.Drainer) bool { return d.Moves() && d.Target != target }) ||
		slices.ContainsFunc(v.Moves, func(j claims.Job) bool { return j.Target != target && j.MayRun() && !j.Waits })
	switch {
	case v.StatefulSet.Replicas < v.Record.Ring.Size:
		return fmt.Sprintf("the StatefulSet must have %d members first", v.Record.Ring.Size)
	case v.drain != nil:
		return fmt.Sprintf("Job %s drains first", v.drain.Name)
	case v.lingering != "":
		return fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", v.lingering)
	case v.warms != "":
		return fmt.Sprintf("Job %s, which copies older values, ends first", v.warms)
	case otherRing:
		return "the pod of an earlier move is still there"
	}
	return v.returns
}

// MayMove guards invariants 5 and 10: the ring is the one that the plan saw, its members exist, no drain
// runs, no move by another ring runs, the claim's member has items to move or is leaving, and no other Job
// moves them. For a prepared move the ring is the next one. MayMove needs Cluster, StatefulSet, Jobs, Moves,
// Drainers, Record, Claims and Ready.
func MayMove(live *Observed, a action.CreateMove) error {
	v := look(live)
	if a.Prepared {
		before := live.Record
		next := live.Cluster.Ring.Of(a.Members)
		next.Out = a.Out
		if v = look(live.at(before.Next(next))); !mayPrepare(v, before) {
			return fmt.Errorf("nothing may be prepared for ring %s", a.Target)
		}
	}
	m := v.of(a.Claim.UID)
	switch {
	case m == nil || !m.live && !m.misplaced:
		return fmt.Errorf("the member of claim %s has nothing to move", a.Claim.Name)
	case TargetWithout(v.Record.Target(), a.Lost) != a.Target:
		return fmt.Errorf("the clients' list is not of ring %s any more", a.Target)
	case !v.StatefulSet.Exists:
		return errors.New("the StatefulSet is gone")
	case m.hasMover:
		return fmt.Errorf("the member of claim %s is being moved already", a.Claim.Name)
	case moverSlots(live) <= 0:
		return fmt.Errorf("%d moves run already", mostMovers)
	case !a.Prepared && !a.Leases && v.leasesWait != "":
		return errors.New(v.leasesWait)
	}
	return refusedIf(moveWaits(v, a.Target))
}

// MayBegin guards invariants 5, 10 and 11: clients are told of the ring by which the member's items are
// moved, and all that MayMove asks for holds. MayBegin needs what MayMove needs.
func MayBegin(live *Observed, a action.BeginMove) error {
	v := look(live)
	m := v.of(a.Claim.UID)
	switch {
	case m == nil || !m.live && !m.misplaced:
		return fmt.Errorf("the member of claim %s has nothing to move", a.Claim.Name)
	case v.Record.Target() != a.Target || v.ListSize == 0:
		return fmt.Errorf("the clients' list is not of ring %s", a.Target)
	case !a.Leases && v.leasesWait != "":
		return errors.New(v.leasesWait)
	case m.mover == nil || !mayBegin(m.mover, a.Target):
		return fmt.Errorf("no Job of the member of claim %s waits", a.Claim.Name)
	}
	return refusedIf(moveWaits(v, a.Target))
}

// MayRecordSkip is asked before a member counts as moved because a person skips its move: the clients' list
// must have that ring. MayRecordSkip needs Record.
func MayRecordSkip(live *Observed, a action.RecordMoved) error {
	if live.Record.Serial >= a.Serial {
		return nil
	}
	return fmt.Errorf("the clients' list must be of ring %d first", a.Serial)
}

// moveAgain replaces a leaving member's mover that has ended without giving all items away.
func (m *movers) moveAgain(c *member) {
	j := c.mover
	switch {
	case j == nil || j.Deleting || j.State == claims.JobActive:
	case j.Target != m.target:
		m.DeleteJob(j, "the ring has changed")
	default:
		a := claims.Attempt{What: "move", Claim: c.Claim, Job: j, Retry: c.MoveRequest == claims.Retry, Clear: []action.Action{action.ClearMoveRetry{Claim: c.Ref()}}, WayOut: podWayOut}
		if j.State == claims.JobComplete {
			a.Invalid = receiptOf(c.Claim, j)
		}
		m.Follow(m.Now, &a)
	}
}

const podWayOut = "the member runs on: see the Job's log, then annotate its pod with " + cachev1alpha1.AnnotationMove + "=retry, or " +
	cachev1alpha1.AnnotationDrain + "=skip to give its items up"
