package plan

import (
	"slices"
	"time"
)

// With podDisruptionBudget.evictions StepOut, the budget allows no eviction of a member that is ready. A node
// is drained by a person or a program that first cordons it. So a member on a cordoned node steps out
// (stepout.go), and is not ready then: its eviction is allowed. The member steps in again when its new pod is
// ready elsewhere, or when its node takes pods again. The operator never evicts a member: a cordoned node may
// stay cordoned.
//
// One member is out at a time. If nodes are drained one after the other, and all of them were cordoned
// before, the member that is out may be on a node whose turn comes later. So the member steps in again after
// a while, and a member on another node steps out. Each turn is longer, so that there are few in the end.

const (
	// cordonedFor is how long a node has been cordoned before its members step out. A node that is cordoned and
	// uncordoned again and again costs nothing.
	cordonedFor = 3 * time.Second
	// evictedWithin is how long a member is out at least for its eviction, while members on other nodes wait.
	evictedWithin = time.Minute
)

// drained returns the cordoned node of the member if that node is to be drained, or nil. A member that is out
// already counts before cordonedFor is over: another process of the operator, which has just begun to look,
// must not bring it back.
func (v *view) drained(ordinal int32) *Cordoned {
	i := slices.IndexFunc(v.Cordoned, func(c Cordoned) bool { return c.Ordinal == ordinal })
	if i < 0 || !v.Cluster.StepsOutForEvictions || v.Cordoned[i].Since.Add(cordonedFor).After(v.Now) && !v.Record.Ring.IsOut(ordinal) {
		return nil
	}
	return &v.Cordoned[i]
}

// nextDrained returns the next member that steps out for its eviction: highest ordinal first, below the one that was
// out last. wake is when to look again.
func (v *view) nextDrained() (next *Cordoned, wake time.Time) {
	last := v.Record.From.Out - 1
	before := func(a, b *Cordoned) bool {
		if first, second := a.Ordinal < last, b.Ordinal < last; first != second {
			return first
		}
		return a.Ordinal > b.Ordinal
	}
	for i := range v.Cordoned {
		c := v.drained(v.Cordoned[i].Ordinal)
		if c == nil {
			if soon := v.Cordoned[i].Since.Add(cordonedFor); v.Cluster.StepsOutForEvictions && soon.After(v.Now) && (wake.IsZero() || soon.Before(wake)) {
				wake = soon
			}
			continue
		}
		if c.Ordinal < v.StatefulSet.Replicas && (next == nil || before(c, next)) {
			next = c
		}
	}
	return next, wake
}

// asideUntil is the time until which the member that is out waits for its eviction; zero if it does not wait.
// ends: the wait ends then, because a member on another node waits for its turn.
func (v *view) asideUntil(ordinal int32) (until time.Time, ends bool) {
	c := v.drained(ordinal)
	if c == nil || v.Table == nil {
		return until, false
	}
	ends = slices.ContainsFunc(v.Cordoned, func(o Cordoned) bool { return o.Node != c.Node && v.drained(o.Ordinal) != nil })
	since := v.Table.Since
	return since.Add(max(evictedWithin, since.Sub(c.Since)/2)), ends
}

// aside tells whether the member that is out waits for its eviction.
func (v *view) aside(ordinal int32) bool {
	if v.NodesPending {
		return slices.Contains(v.Aside, ordinal)
	}
	until, ends := v.asideUntil(ordinal)
	return !until.IsZero() && (!ends || until.After(v.Now))
}
