package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// decideMarks decides which claims get the leaving mark, before the StatefulSet shrinks. If the operator dies
// in between, a member may leave and return needlessly, but an old volume never comes back. At size 0 no
// claim is marked, because no member is left that could store newer values. During a drain no claim is marked
// either: the size is the one that the drain began with, and the marks for that size were written before. A
// claim beyond that size without a mark belongs to a newer member that a stale cache shows. The mark also
// says whether the member's items were moved by the rings before this plan. after has the claims with the
// marks.
func decideMarks(v *view, replicas int32) (after []claims.Claim, w claims.Work) {
	after = slices.Clone(v.Claims)
	for i := range after {
		c := &after[i]
		if c.InPod && c.Deleting {
			continue // the pod is going already
		}
		if replicas > 0 && c.Ordinal >= replicas && c.LeavingSince.IsZero() && v.mayMark(c.Ordinal) == nil {
			w.Do(action.MarkLeaving{Claim: c.Ref(), Unmoved: moveDue(v.Observed, c), NeverStarted: neverHadItems(v, c)})
			c.PlanMark()
		}
	}
	return after, w
}

// neverHadItems tells whether the member that is told to leave has never had items. A pod that is on the
// clients' list may still become ready, and get some.
func neverHadItems(v *view, c *claims.Claim) bool {
	if c.InPod {
		return c.Ordinal >= v.Record.Ring.Size
	}
	return c.NotStartedYet
}

// decideRunning decides how many members run: those that stay, and all leaving members as long as the
// cluster waits for one of them, or routers still look for items at one, or will do so after this
// plan.
func decideRunning(v *view, replicas int32, told *Told) (running int32, w claims.Work) {
	running = replicas
	if told.Prepares {
		running = max(running, v.StatefulSet.Replicas)
	}
	routersAsk := v.change || told.Table.State == contract.RingMove
	for i := range v.members {
		m := &v.members[i]
		asked := routersAsk && m.isLeaving && !m.Deleting && !m.overdue && m.ready
		if replicas == 0 || m.Ordinal < replicas || !m.waits && !asked {
			continue
		}
		running = v.StatefulSet.Replicas
		at, marked := m.LeavingAt()
		switch { // there is no event if no mover starts, or if its node is gone
		case marked && at.Add(moverStartsWithin).After(v.Now):
			w.WakeAt(at.Add(moverStartsWithin))
		case marked:
			w.WakeAt(m.by)
		}
		if m.mover != nil && !m.mover.IdleSince.IsZero() {
			w.WakeAfter(v.Now, m.mover.IdleSince.Add(moverStartsWithin))
		}
	}
	return running, w
}
