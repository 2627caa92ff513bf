package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/drainer/contract"
)

// decideMarks decides which claims get the leaving mark, before the StatefulSet is
// made smaller. If the operator dies in between, a member may leave and return needlessly, but an
// old volume never comes back. At size 0 no claim is marked, because no member is left that could
// store newer values. During a drain no claim is marked either: the size is the one that the drain
// began with, and the marks for that size were written before. If a claim beyond that size has no
// mark, the cache is stale, and the claim belongs to a newer member. The mark also says whether the
// member's items were moved by the rings before this plan. after has the claims as they are then.
func decideMarks(o *Observed, replicas int32) (after []claims.Claim, w claims.Work) {
	after = slices.Clone(o.Claims)
	for i := range after {
		c := &after[i]
		if replicas > 0 && c.Ordinal >= replicas && c.LeavingSince.IsZero() && MayMark(o, c.Ordinal) == nil {
			w.Do(action.MarkLeaving{Claim: c.Ref(), Unmoved: o.moveDue(&o.Record, c), NeverStarted: c.NotStartedYet})
			c.PlanMark()
		}
	}
	return after, w
}

// decideRunning decides how many members run: those that stay, and all leaving members as long as the
// cluster waits for one of them.
func decideRunning(o *Observed, replicas int32, told *Told) (running int32, w claims.Work) {
	running = replicas
	if told.Prepares {
		running = max(running, o.StatefulSet.Replicas)
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if replicas == 0 || c.Ordinal < replicas || !o.waitsForMover(c) && !told.routersAsk(o, c) {
			continue
		}
		running = o.StatefulSet.Replicas
		at, marked := c.LeavingAt()
		switch { // there is no event if no mover starts, or if its node is gone
		case marked && at.Add(moverStartsWithin).After(o.Now):
			w.WakeAt(at.Add(moverStartsWithin))
		case marked:
			w.WakeAt(o.stopsWaiting(c))
		}
	}
	return running, w
}

// routersAsk tells whether routers still look for items at this leaving member, or will do so after
// this plan.
func (told *Told) routersAsk(o *Observed, c *claims.Claim) bool {
	return (o.routersChange() || told.Table.State == contract.RingMove) && o.isLeaving(c) && !c.Deleting && !o.overdue(c) && slices.Contains(o.Ready, c.Ordinal)
}
