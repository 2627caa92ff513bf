package plan

import (
	"fmt"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// Without volumes, a member's pod holds the only copy of its items. The pod also carries what a claim carries
// otherwise: the leaving mark, the ring by which the items were moved, and the attempts. So a leaving member
// runs until a mover has found nothing more, however long that takes: a failed mover is tried again, and the
// cluster waits for a member that isn't ready, because its container comes back with its items. The member
// leaves earlier if a person skips it, if its pod is being deleted, or when the deadline is over
// (leaving.by). A new pod is empty, whatever pod had its name before, so it is stamped with the present ring,
// and marked again if it is to leave.

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
			state.Why = v.went(m)
		case m.waits && m.mover != nil && m.mover.State == claims.JobFailed:
			state.Reason = claims.JobGaveUp
			state.Message = fmt.Sprintf("%s; until %s, %s", m.mover.Message, m.by.UTC().Format(time.RFC3339), podWayOut)
		}
		s.Drains = append(s.Drains, state)
	}
	return s
}

// went tells how the member leaves; empty if it has had no items.
func (v *view) went(m *member) action.Release {
	switch {
	case m.NotStartedYet || m.NeverStarted || m.MarkPending() && neverHadItems(v, m.Claim):
		return ""
	case v.givenAway(m):
		return action.ByMove
	case m.Request == claims.Skip:
		return action.BySkip
	case !v.Cluster.ToDrain(m.Claim):
		return action.ByPolicyDelete
	}
	return action.NotMoved
}

// MayShrink is asked before the StatefulSet is made smaller, in addition to MaySetReplicas: without volumes,
// no pod goes that may have the only copy of an item. MayShrink needs what MaySetReplicas needs, and Ready.
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
