package plan

import (
	"cmp"
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"
)

// look computes all that follows from the facts.
func look(o *Observed) *view {
	v := &view{Observed: o, lowest: o.LowestMarked(), staying: o.StatefulSet.Replicas}
	if v.lowest != nil {
		v.staying = min(v.staying, max(v.lowest.Ordinal, o.Record.Ring.Size))
	}
	v.drain, v.lingering, v.returns = o.RunningDrain(), o.LingeringDrainer(), waitsForReturn(o)
	v.drains = v.drain != nil || v.lingering != ""
	v.routers = routersOf(o)
	v.members = make([]member, len(o.Claims))
	for i := range o.Claims {
		v.members[i] = memberOf(o, &o.Claims[i])
	}
	v.lookForLost()
	v.lookForGone()
	v.lookForStuck()
	v.stepping = o.Record.Ring.Out > 0 && !v.gone || v.settle && o.Table.New.Out > 0
	for i := range v.members {
		m := &v.members[i]
		runs := m.LeavingSince.IsZero() || m.Ordinal < o.StatefulSet.Replicas && m.ready
		m.misplaced = moveDue(o, m.Claim) && m.Ordinal < o.Record.Ring.Size && runs && !m.Aside && (!m.Deleting || o.Record.Ring.IsOut(m.Ordinal) && m.ready) && !slices.Contains(v.lost, m.Ordinal) &&
			(!v.gone || !o.Record.Ring.IsOut(m.Ordinal))
		v.misplaced = v.misplaced || m.misplaced
	}
	v.misplaced = v.misplaced || v.emptyReturnDue()
	v.lookAtMoves()
	for i := range v.members {
		v.members[i].leaving = v.leavingOf(&v.members[i])
	}
	return v
}

func memberOf(o *Observed, c *claims.Claim) member {
	m := member{Claim: c, ready: slices.Contains(o.Ready, c.Ordinal), afterMove: afterMove(&o.Record, c)}
	m.hasMover = slices.Contains(o.ClaimsWithDrainerPod, c.UID)
	for i := range o.Drainers {
		if d := &o.Drainers[i]; d.ClaimUID == c.UID {
			m.hasMover = m.hasMover || d.Mover()
			m.running = m.running || d.Mover() && d.Running
			m.prepared, m.settles = m.prepared || d.Prepared, m.settles || d.Settles
		}
	}
	if i := slices.IndexFunc(o.Moves, func(j claims.Job) bool { return j.ClaimUID == c.UID }); i >= 0 {
		m.mover, m.hasMover = &o.Moves[i], true
	}
	return m
}

// waitsForReturn says that drains and moves wait for a member that returns empty; empty if there is none.
// Such a member stays, but its claim was deleted, and its volume is being set aside. Items that a drain or a
// move gives to the member may be older than those on its first volume, which is drained next. So drains and
// moves that are at work are ended, and begin again in their turn; the claim is handed over when none is at
// work, and none begins before that. A claim that can't be set aside now keeps its member away, so nothing
// moves there meanwhile.
func waitsForReturn(o *Observed) string {
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.LeavingSince.IsZero() && !c.Aside && c.HasVolumeToHandOver() && !c.InUse && c.CanBeSetAside() && !o.IsObstructed(c) {
			return fmt.Sprintf("claim %s was deleted: its volume is set aside first, since its items may be newer", c.Name)
		}
	}
	return ""
}

// moveDue tells whether the claim's member had items when a ring of the record last moved keys, and these
// items have not been moved since.
//
// When a member steps out, only that member's items have to be moved: the others keep theirs. The member that
// is out has none once its items are moved, and is looked at again if the ring changes meanwhile.
func moveDue(o *Observed, c *claims.Claim) bool {
	r := &o.Record
	had := r.From.Has(c.Ordinal) && !r.StepsOut() || r.Ring.IsOut(c.Ordinal)
	return !o.Cluster.MovesOff && c.Moved < r.Serial && had
}

// emptyReturnDue tells whether a move is due as soon as a member returns from hibernation on a claim that is
// yet to be made. No other member may be told to leave before that: the move would wait for the leaving
// members' volumes, and these for the move, because the leaving members stay on the list until it is written
// again. Once members of the ring have been told to leave, it is decided which members return.
func (v *view) emptyReturnDue() bool {
	told := v.lowest != nil && v.lowest.Ordinal < v.Record.Ring.Size
	if v.Cluster.InPods || v.Cluster.MovesOff || v.ListSize > 0 || v.Warm.holds() && v.allReady() || v.Record.Serial == 0 || told {
		return false
	}
	for i := range min(v.Record.From.Size, v.Record.Ring.Size) {
		if !slices.ContainsFunc(v.Claims, func(c claims.Claim) bool { return c.Ordinal == i && !c.Aside && !c.Deleting }) {
			return true
		}
	}
	return false
}

func (v *view) lookAtMoves() {
	// Routers that settle can't go back. The ring that they are told of next moves these items, too.
	v.moving = v.change || v.misplaced && !v.settle
	switch {
	case v.drain != nil:
		v.movesNow = "Job " + v.drain.Name
	case v.lingering != "":
		v.movesNow = "drainer " + v.lingering
	}
	for i := range v.Moves {
		j := &v.Moves[i]
		unfinished := j.State != claims.JobFailed || j.Deleting || j.MayRun() // it may still run, or is complete and about to be deleted
		v.moverExists = v.moverExists || unfinished
		v.moving = v.moving || unfinished && (!j.Waits || j.State == claims.JobComplete)
		if v.movesNow == "" && j.MayRun() && !j.Waits {
			v.movesNow = "Job " + j.Name
		}
	}
	for i := range v.Warms {
		if j := &v.Warms[i]; j.MayRun() {
			v.warms, v.moving = j.Name, true
			v.movesNow = cmp.Or(v.movesNow, "Job "+j.Name)
		}
	}
	for i := range v.Drainers {
		d := &v.Drainers[i]
		v.moverExists = v.moverExists || d.Mover()
		v.begun = v.begun || d.Moves()
		if v.movesNow == "" && d.Moves() {
			v.movesNow = "drainer " + d.Pod
		}
	}
	v.moving = v.moving || v.begun
}

// losesCopies tells whether a restart loses items of claims that are copied, and are not copied again. If a member is not
// ready, none is copied before it is, and perhaps only its next template helps.
func (v *view) losesCopies() bool {
	return v.Cluster.InPods && len(v.Warm.Record.Claims) > 0 && v.allReady()
}

// rollsOut tells whether members are replaced one after the other, so that no Job that is not at work may hold that up.
func (v *view) rollsOut() bool {
	waits := v.ListSize == 0 && v.Warm.holds() && v.losesCopies()
	return v.Cluster.Moved && v.StatefulSet.Seen && len(v.StatefulSet.Outdated) > 0 && !waits
}
