package plan

import (
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Without volumes, the pod of a member holds its items, and carries what a claim says otherwise: the leaving mark, by
// which ring its items were moved, and the attempts. This is the only copy. So a leaving member runs on until a mover
// has found nothing more, whatever that takes: a failed mover is tried again, and a member that isn't ready is waited
// for, because its container comes back with its items. It leaves without that if a person skips it, if its pod is
// being deleted, or when the deadline is over (leaving.by). A new pod is empty, whoever had its name before: it is
// stamped with the present ring, and marked again if it is to leave.

// stampPods notes on each new pod that its items need no move: it was empty when clients began to use it by the
// present ring.
func stampPods(o *Observed) (after []claims.Claim, w claims.Work) {
	after = slices.Clone(o.Claims)
	for i := range after {
		if c := &after[i]; c.Unstamped && !c.Deleting {
			w.Do(action.StampPod{Claim: c.Ref(), Serial: o.Record.Serial})
			c.Moved, c.Unstamped = o.Record.Serial, false
		}
	}
	return after, w
}

// leavingPod works out how a member without a volume leaves.
func (v *view) leavingPod(m *member, l leaving) leaving {
	l.live = l.isLeaving && 0 < v.Cluster.Size && v.Cluster.ToDrain(m.Claim) && !v.Cluster.MovesOff &&
		!m.Deleting && m.Request != claims.Skip && !m.NotStartedYet && !m.NeverStarted
	if !l.live || l.overdue || v.givenAway(m) {
		return l
	}
	l.hasItems, l.waits = !m.settles, true
	return l
}

// givenAway tells whether a mover has found nothing more at the member, by the present ring.
func (v *view) givenAway(m *member) bool {
	j := m.mover
	return j != nil && !j.Deleting && j.State == claims.JobComplete && j.Target == v.target && receiptOf(m.Claim, j) == nil
}

// moveAgain takes care of a leaving member's mover that has not given all items away: another one follows it.
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

// decidePods tells how the members without volumes leave, highest ordinal first.
func decidePods(v *view, leaves func(*claims.Claim) (claims.DrainPhase, string, string)) (s claims.Volumes) {
	for i := range v.members {
		m := &v.members[i]
		if m.LeavingSince.IsZero() {
			continue
		}
		state := claims.DrainState{Claim: *m.Claim, Mover: m.mover}
		state.Phase, state.Reason, state.Message = leaves(m.Claim)
		switch {
		case state.Phase == "":
			state.Phase, state.Reason, state.Message = claims.Waiting, claims.PodPresent, v.ShutsDown(m.Ordinal)
		case m.waits && m.mover != nil && m.mover.State == claims.JobFailed:
			state.Reason = claims.JobGaveUp
			state.Message = fmt.Sprintf("%s; until %s, %s", m.mover.Message, m.by.UTC().Format(time.RFC3339), podWayOut)
		}
		s.Drains = append(s.Drains, state)
	}
	return s
}

// MayShrink is asked before the StatefulSet is made smaller, in addition to MaySetReplicas: without volumes, no pod
// goes that may have the only copy of an item. It needs what MaySetReplicas needs, and Ready.
func MayShrink(live *Observed, replicas int32) error {
	if !live.Cluster.InPods || replicas == 0 {
		return nil
	}
	v := look(live)
	for i := range v.members {
		if m := &v.members[i]; m.waits && m.Ordinal >= replicas {
			return fmt.Errorf("pod %s may still have items", m.Name)
		}
	}
	return nil
}

// stamped refuses if a pod isn't stamped yet: with another ring, its items would be looked for elsewhere, or not be
// looked for at all.
func stamped(live *Observed) error {
	for i := range live.Claims {
		if c := &live.Claims[i]; c.InPod && c.Unstamped && !c.Deleting {
			return fmt.Errorf("pod %s was just created", c.Name)
		}
	}
	return nil
}
