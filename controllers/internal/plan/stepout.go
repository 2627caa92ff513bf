package plan

import (
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/drainer/contract"
)

// With spec.rollout Moved, a member that gets another template steps out of the ring before its restart, and
// steps in afterwards. A member on a node that is drained does the same, if the spec wants it (evictions.go).
// Both are ring changes (told.go, table.go, moves.go) that only routers are told of. The clients' list stays.
//
//	steps out: a ring change to the same members without it; its items are moved
//	empties:   its supervisor is told to start memcached empty, and says that it has
//	restarts:  the StatefulSet's partition is lowered to it, and its pod is replaced
//	steps in:  a ring change back
//
// The write that changes the template sets the partition to the size (package apply), so no member restarts
// by itself. One member is out at a time, highest ordinal first, because a partition lets all higher ordinals
// restart. A member that is out never returns with what could not be moved: its values may be old by then. If
// no step fits, the partition is lowered without one, and the member restarts where it is.
//
// The ring in the list's record says which member is out. A step that has begun continues whatever the spec
// says, and sizes and drains wait for it. No step begins while a drain is due or the size changes.

// StepState is the state of the member that is replaced.
type StepState string

// The states.
const (
	StepsOut StepState = "stepping out"
	// StepEmpties: the member is out, and its memcached is to start empty.
	StepEmpties StepState = "out of the ring, and starts empty"
	StepWaits   StepState = "out of the ring, and is not ready"
	// StepAside: the member is out, and not ready, so that it may be evicted from its node (evictions.go).
	StepAside StepState = "out of the ring, and may be evicted"
	StepsIn   StepState = "stepping in"
	// RestartsInPlace: the member restarts without a step. Step.Why says why.
	RestartsInPlace StepState = "restarting with its items"
	// StepDelayed: the next step has not begun. Step.Why says what it waits for.
	StepDelayed StepState = "the next to be replaced"
)

// Step is the decision about the member that is replaced now.
type Step struct {
	// Out is the member that is to be out of the ring, as in ring.Ring.
	Out int32
	// Partition: members with lower ordinals keep their template.
	Partition int32
	// Member is the one that is replaced, and State says how; State is empty if no member is.
	Member int32
	State  StepState
	Why    string
	// Loses: the member restarts where it is, or all do that a lower partition lets go, and has no volume, so its items
	// are lost.
	Loses bool
	// Since is when routers were told of the present state; zero if that is not known.
	Since time.Time
	// Node is the one that the member leaves; empty if the member gets another template.
	Node string
	// Begins: the member steps out, or restarts where it is, as the first one of a roll-out. Unforeseen: it restarts where
	// it is although the spec and the client library let members step out.
	Begins, Unforeseen bool
	// Aside: the member that is out is not to be ready, so that it may be evicted. Evicted: no step fits, and members
	// on cordoned nodes may be evicted with their items. Why says why.
	Aside, Evicted bool
}

func (s Step) is(member int32, state StepState, why string) Step {
	s.Member, s.State, s.Why = member, state, why
	return s
}

// turns is a step that begins with this plan: routers are told of it next.
func (s Step) turns(member int32, state StepState) Step {
	s.Since = time.Time{}
	return s.is(member, state, "")
}

// decideStep decides which member is out of the ring, and which members may get the present template.
func decideStep(v *view, size *Size) (s Step, w claims.Work) {
	s.Out, s.Partition = v.Record.Ring.Out, v.StatefulSet.Partition
	if v.Table != nil {
		s.Since = v.Table.Since
	}
	switch {
	case !v.StatefulSet.Exists, size.Replicas == 0:
		return s, w // a cluster that hibernates resumes the step
	case v.settle: // routers can't go back
		s.Out = v.Table.New.Out
		if s.Out != v.Record.Ring.Out {
			return s.is(max(s.Out, v.Record.Ring.Out)-1, stepTo(s.Out), ""), w
		}
	case s.Out > 0 && !v.Cluster.Exclusive:
		s.Out = 0 // no router knows of the step
		return s, w
	}
	if s.Out > 0 {
		w.WakeAfter(v.Now, v.goneAt)
		w.WakeAfter(v.Now, v.awayForLong(s.Out-1))
		w.WakeAfter(v.Now, v.awayFor(s.Out-1, stuckFor))
		w.WakeAfter(v.Now, v.stuckAt)
		if until, ends := v.asideUntil(s.Out - 1); ends {
			w.WakeAfter(v.Now, until)
		}
		s = v.stepBack(s)
		s.Loses = v.Cluster.InPods && s.Partition < v.StatefulSet.Partition && v.higherOutdated(s.Member)
		return s, w
	}
	s, w = v.stepNext(s, size)
	letGo := len(v.StatefulSet.Outdated) > 0 && s.Partition < v.StatefulSet.Partition
	s.Loses = v.Cluster.InPods && (s.State == RestartsInPlace || letGo)
	return s, w
}

// higherOutdated tells whether a member with a higher ordinal doesn't have the present template.
func (v *view) higherOutdated(member int32) bool {
	return slices.ContainsFunc(v.StatefulSet.Outdated, func(i int32) bool { return i > member })
}

func stepTo(out int32) StepState {
	if out > 0 {
		return StepsOut
	}
	return StepsIn
}

// stepBack continues a step that has begun: it decides about the member that is out.
func (v *view) stepBack(s Step) Step {
	member := v.Record.Ring.Out - 1
	if c := v.drained(member); c != nil {
		s.Node = c.Node
	}
	s = v.stepOn(s, member)
	switch {
	case s.State == StepAside || !v.isAway(member, lostAfter):
	case v.higherOutdated(member) && s.Partition > member && (v.Cluster.InPods || slices.Contains(v.Empty, member)):
		s.Why = "it has been away for a minute, and the members above it get the present template first: delete its pod, which then gets that of the last roll-out that has ended; or set spec.rollout to Restart, by which these restart where they are, and lose their items if they have no volumes"
	default:
		s.Why = "it has been away for a minute, and a change of size does not wait for it: delete its pod if its node is gone"
	}
	return s
}

// restartsWhileOut tells whether the member that is out gets the present template although it is not its turn: perhaps only
// that brings it back. The partition lets the members above it restart as well, where they are. Without volumes that
// takes a person's word, spec.rollout Restart.
func (v *view) restartsWhileOut(member int32, moves bool) bool {
	switch higher, inPods := v.higherOutdated(member), v.Cluster.InPods; {
	case inPods && (moves || higher && v.Cluster.Moved):
		return false
	case !higher || !v.Cluster.Moved:
		return v.stuck != "" || v.isAway(member, lostAfter)
	}
	return v.stuck != "" || v.isAway(member, stuckFor) && !slices.Contains(v.Empty, member) // its supervisor doesn't answer
}

func (v *view) stepOn(s Step, member int32) Step {
	higher := v.higherOutdated(member)
	outdated := slices.Contains(v.StatefulSet.Outdated, member)
	to := v.Record.Ring.Whole()
	t := v.Table
	returns := t != nil && t.State == contract.RingPrepare && t.Old == v.Record.Ring && t.New == to
	s.Aside = !returns && (outdated || len(v.StatefulSet.Outdated) == 0) && !higher && v.aside(member) // a roll-out waits for no eviction
	moves := v.misplaced || v.unmoved(member) || !returns && !t.Within(v.Record.Ring)
	if outdated && v.StatefulSet.Seen && v.restartsWhileOut(member, moves) {
		s.Partition = min(s.Partition, member)
	}
	switch {
	case moves:
		return s.is(member, StepsOut, "")
	case !slices.Contains(v.Empty, member):
		return s.is(member, StepEmpties, "")
	case !v.StatefulSet.Seen:
		return s.is(member, StepWaits, "")
	case outdated && !higher: // the template may have changed again: then the highest member comes first
		s.Partition = min(s.Partition, member)
		return s.is(member, StepWaits, "")
	case s.Aside:
		return s.is(member, StepAside, "")
	case slices.Contains(v.Aside, member) || !v.mayStep(to):
		return s.is(member, StepWaits, "")
	}
	if s.Out = 0; !returns {
		return s.turns(member, StepsIn)
	}
	return s.is(member, StepsIn, "")
}

// unmoved tells whether the member that is out may still have items that the others lack.
func (v *view) unmoved(ordinal int32) bool {
	return slices.ContainsFunc(v.members, func(m member) bool { return m.Ordinal == ordinal && !m.Aside && moveDue(v.Observed, m.Claim) })
}

// stepNext decides about the next member, while none is out.
func (v *view) stepNext(s Step, size *Size) (Step, claims.Work) {
	var w claims.Work
	outdated := v.StatefulSet.Outdated
	switch {
	case !v.StatefulSet.Seen:
		return s, w
	case len(outdated) == 0 || !v.Cluster.Moved:
		s.Partition = 0
		return v.stepForNode(s, size)
	}
	for i := v.StatefulSet.Replicas - 1; i >= s.Partition; i-- { // one at a time, each ready before the next
		if !slices.Contains(v.Ready, i) {
			return s.is(i, RestartsInPlace, v.stepUnfit(i)), w
		}
	}
	member := outdated[len(outdated)-1]
	if member < s.Partition {
		first := s.Partition >= v.StatefulSet.Replicas
		if s, w = v.stepOut(s, member, size); s.State != "" {
			s.Begins = first && s.State == StepsOut && v.Table.State == contract.RingStable
			return s, w
		}
		s.Partition, s.Begins, s.Unforeseen = member, first, v.stepUnfit(member) == ""
		return s.is(member, RestartsInPlace, s.Why), w
	}
	return s.is(member, RestartsInPlace, v.stepUnfit(member)), w
}

// stepForNode decides about the next member on a node that is drained, while no template is rolled out.
func (v *view) stepForNode(s Step, size *Size) (Step, claims.Work) {
	next, soon := v.nextDrained()
	var w claims.Work
	if next != nil {
		s.Node = next.Node
		s, w = v.stepOut(s, next.Ordinal, size)
		s.Evicted = s.State == ""
	}
	w.WakeAfter(v.Now, soon)
	return s, w
}

// stepOut lets the member step out, or says what that waits for. If no step fits, there is no state, and Why says why.
func (v *view) stepOut(s Step, member int32, size *Size) (Step, claims.Work) {
	var w claims.Work
	wait, why, wake := v.stepWaits(member, size)
	switch {
	case wait != "":
		w.WakeAfter(v.Now, wake)
		w.WakeAfter(v.Now, v.stuckAt)
		return s.is(member, StepDelayed, wait), w
	case why != "":
		return s.is(member, "", why), w
	}
	if s.Out = member + 1; v.Table.State == contract.RingStable {
		return s.turns(member, StepsOut), w
	}
	return s.is(member, StepsOut, ""), w
}

// StepBegins returns the member that is about to step out, so that its items need room; false if there is
// none.
func (o *Observed) StepBegins() (member int32, is bool) {
	asked := *o
	asked.StepRoom = nil
	v := look(asked.inOrder())
	if v.settle || v.Record.Ring.Out > 0 || !o.StatefulSet.Exists || o.Cluster.Deleting || o.Cluster.NamespaceTerminating {
		return 0, false
	}
	size, _ := decideSize(v)
	s, _ := v.stepNext(Step{Partition: v.StatefulSet.Partition}, &size)
	return s.Member, s.State == StepsOut && size.Replicas > 0
}

// StepsOut tells whether the member steps out before it is replaced, apart from obstacles that pass with
// time.
func (o *Observed) StepsOut(ordinal int32) bool {
	asked := *o
	v := look(asked.inOrder())
	return v.Cluster.Moved && v.stepUnfit(ordinal) == ""
}

// stepWaits tells what a step of the member waits for, or why it restarts where it is; both are empty if it may
// step out. wake is when to look again.
func (v *view) stepWaits(member int32, size *Size) (wait, why string, wake time.Time) {
	whole := v.Record.Ring
	leaves := func(c *claims.Claim) bool { return !c.LeavingSince.IsZero() }
	if v.Cluster.InPods && v.stepClaim(member, leaves) { // its pod has the only copy of its items
		return "the size changes first", "", wake
	}
	if why = v.stepUnfit(member); why != "" {
		return "", why, wake
	}
	away := ""
	for i := range v.StatefulSet.Replicas {
		switch long := v.awayForLong(i); {
		case long.IsZero():
		case !long.After(v.Now):
			away = fmt.Sprintf("member %d is away", i)
		case wake.IsZero() || long.Before(wake):
			wake = long
		}
	}
	if away != "" && (!v.Cluster.InPods || member >= whole.Size) { // what is under way may wait for a member that only its new template brings back
		return "", away, wake
	}
	t := v.Table
	steps := t != nil && t.State == contract.RingPrepare && t.Old == whole && t.New == whole.Without(member)
	switch {
	case size.changes(v):
		return "the size changes first", "", wake
	case size.SizeBlocked == BlockedByShortage && !v.Cluster.InPods:
		return "", "the others have too little memory, as for the size that is wanted", wake
	case v.moving && v.movesNow != "":
		return "items are moved first, by " + v.movesNow, "", wake
	case v.moving:
		return "items are moved first", "", wake
	case v.drains || v.returns != "" || slices.ContainsFunc(v.members, v.drainComes):
		return "a volume is drained first", "", wake
	case t == nil || !steps && (t.State != contract.RingStable || t.New != whole):
		return "routers change rings first", "", wake
	case !v.Cluster.InPods && !v.stepClaim(member, func(*claims.Claim) bool { return true }): // another client may have removed its label, which the operator sets again
		return "its claim is not there", "", wake
	case v.StepRoom.Asking():
		return "the members are asked how full they are", "", wake
	case v.StepRoom.Short() && !v.Cluster.InPods: // without a volume, all of its items would be lost
		return "", v.StepRoom.Says("it has"), wake
	}
	if away != "" {
		return "", away, wake
	}
	for i := range whole.Size {
		if !slices.Contains(v.Ready, i) {
			return fmt.Sprintf("member %d is not ready", i), "", wake
		}
	}
	if !v.mayStep(whole.Without(member)) {
		return "the ring changes first", "", wake
	}
	return "", "", wake
}

// changes tells whether the size changes now, or will by itself. A step doesn't wait for a size that waits for a person.
func (s *Size) changes(v *view) bool {
	whole := v.Record.Ring
	switch s.SizeBlocked {
	case BlockedByVolume, BlockedByShortage, BlockedByRefusal: // if its volume is drained soon, a step waits for that
		return s.Replicas != v.StatefulSet.Replicas || s.Replicas != whole.Size || v.ListSize != whole.Size
	}
	return s.Replicas != v.StatefulSet.Replicas || s.SizeBlocked != NotBlocked || v.Cluster.Size != whole.Size || v.ListSize != whole.Size
}

// stepUnfit tells why the member can't step out, as far as waiting doesn't change it.
func (v *view) stepUnfit(ordinal int32) string {
	whole := v.Record.Ring.Whole()
	switch {
	case !v.Cluster.Exclusive:
		return "router.exclusive is not set"
	case v.Cluster.MovesOff || v.Cluster.Patience == 0 && !v.Cluster.InPods:
		return "routing.moves and routing.patience move no items"
	case whole.Size < 2:
		return "it is the only member"
	case whole.Fragile():
		return "the client library hashes the members' addresses, which change"
	case ring.Share(whole, whole.Without(ordinal)) > 0:
		return "the client library looks for other members' keys elsewhere, too, without it"
	case v.ListSize == 0 && v.Warm.holds() && v.warms == "" && !v.losesCopies():
		return "no client is told of the members before the cluster is warm"
	case v.stepClaim(ordinal, func(c *claims.Claim) bool { return c.Deleting || !c.LeavingSince.IsZero() }), v.Cluster.InPods && !v.stepClaim(ordinal, func(*claims.Claim) bool { return true }):
		return fmt.Sprintf("its %s is being deleted", v.holder())
	case v.PodExists(ordinal) && !slices.Contains(v.Tellable, ordinal):
		return "it has started before rollout was Moved"
	case slices.ContainsFunc(v.members, func(m member) bool { return v.toDrain(m) && !v.drainComes(m) }):
		return "a drain has failed, or waits for a person"
	case slices.ContainsFunc(v.members, func(m member) bool { return m.toMove() && m.mover != nil && moveFailed(m.mover) }):
		return "a move has failed, and waits for a person"
	}
	return v.stuck
}

// moveFailed tells whether the mover has failed, and is not tried again by itself.
func moveFailed(j *claims.Job) bool {
	return j.State == claims.JobFailed && !j.Deleting && !j.Retryable()
}

// stepClaim tells whether the member has such a claim.
func (v *view) stepClaim(ordinal int32, is func(*claims.Claim) bool) bool {
	return slices.ContainsFunc(v.Claims, func(c claims.Claim) bool { return c.Ordinal == ordinal && !c.Aside && is(&c) })
}

// toDrain tells whether the member has left a volume that is not drained yet.
func (v *view) toDrain(m member) bool {
	return !m.LeavingSince.IsZero() && v.Cluster.ToDrain(m.Claim) && m.Receipt == nil && m.Finalizer
}

// drainComes tells whether the volume that the member has left is drained soon: no person holds it, and no
// attempt has failed.
func (v *view) drainComes(m member) bool {
	job := v.JobOf(m.UID)
	return v.toDrain(m) && v.DrainsByItself(&v.Cluster.Terms, m.Claim) && (job == nil || job.State != claims.JobFailed)
}

// mayStep tells whether a member may step out or in now: the clients' ring stays, all its members are ready, and
// nothing else is under way. The plan asks this, and MayMove asks it about live state.
func (v *view) mayStep(to ring.Ring) bool {
	from := v.Record.Ring
	if from.Whole() != to.Whole() || from.Out > 0 && to.Out > 0 || from.Whole() != v.Cluster.Ring.Of(from.Size) || v.ListSize != from.Size ||
		v.StatefulSet.Replicas < from.Size || v.drains || v.moving {
		return false
	}
	for i := range from.Size {
		if !slices.Contains(v.Ready, i) {
			return false
		}
	}
	return true
}

// MayStartEmpty is asked before a member is told to start empty, which drops what could not be moved: the
// member is out of this ring, its items are moved, and routers were told so. MayStartEmpty needs what MayMove
// needs.
func MayStartEmpty(live *Observed, a action.StartEmpty) error {
	v := look(live)
	if r := &v.Record; !r.Ring.IsOut(a.Pod.Ordinal) || r.Serial != a.Serial || v.misplaced || v.unmoved(a.Pod.Ordinal) || !v.Table.Within(r.Ring) {
		return fmt.Errorf("member %d is not out of the ring yet", a.Pod.Ordinal)
	}
	return nil
}
