package plan

import (
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// A scale-down is announced first: the marks are written, movers are prepared (told.go), and the
// clients' list names only the members that stay. The leaving members keep running meanwhile. A
// mover (drainer move) gives their items to the owners while clients still find them, and ends when
// no client calls a leaving member any more, or when routing.patience is over. Only then does the
// StatefulSet shrink, and the volumes are drained as usual. The drain adds what is left on them,
// which usually is nothing.
//
//	marked ──movers run──▶ announced ──they begin──▶ moved ──they have ended──▶ departed ──▶ drained (volumes.go)
//	   │                       │                       │
//	   └───────────────────────┴───────────────────────┴── anything goes wrong: departed at once
//
// The move is tried once for each leaving member, and its Job is the only record of it. A failure
// costs hits and no items, because the drain follows in any case. Leaving members leave together,
// when the last one has been moved.

// moverStartsWithin bounds how long a leaving member keeps running without a mover at work.
const moverStartsWithin = time.Minute

// mostMovers is how many members' items are moved at once, leaving and staying members together: as many as a large
// cluster has, because a mover that is not prepared when the list changes does not wait for clients.
// spec.drain.parallelism does not count here: a mover takes less than a second for most caches, or
// waits for clients.
const mostMovers = 64

// leavingOf works out how a member leaves. The plan asks for live, and MayMove asks it about live state.
func (v *view) leavingOf(m *member) (l leaving) {
	l.isLeaving = !m.LeavingSince.IsZero() && !m.Aside && v.Record.Ring.Size <= m.Ordinal && m.Ordinal < v.StatefulSet.Replicas
	l.by = m.LeavingSince.Add(2*moverStartsWithin + v.Cluster.MoveDeadline)
	_, told := m.LeavingAt()
	l.overdue = told && !l.by.After(v.Now)
	if v.Cluster.InPods {
		return v.leavingPod(m, l)
	}
	older := m.afterMove && v.misplaced
	wanted := v.Cluster.Size > m.Ordinal && !v.askOldOwners
	l.live = l.isLeaving && 0 < v.Cluster.Size && !wanted && v.Cluster.ToDrain(m.Claim) && v.Cluster.Patience > 0 &&
		!v.Cluster.MovesOff && !m.Deleting && !m.KeptByAPerson() && m.Receipt == nil && !older
	if !l.live || !m.ready || l.overdue {
		return l
	}
	job := m.mover
	active := job != nil && !job.Deleting && job.State == claims.JobActive && job.Target == v.target
	l.hasItems = !m.settles && (job == nil || job.Deleting || job.State == claims.JobActive || job.Target != v.target)
	// soon: the member was told to leave a moment ago. Any client may have written the mark, so a time in the
	// future does not count as recent.
	age := v.Now.Sub(m.LeavingSince)
	soon := m.MarkPending() || -moverStartsWithin < age && age < moverStartsWithin || v.askOldOwners
	l.waits = job == nil && soon || active && (soon || m.running || job.IdleSince.Add(moverStartsWithin).After(v.Now))
	return l
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

// receiptOf returns why the mover's receipt does not count.
func receiptOf(c *claims.Claim, j *claims.Job) error {
	if j.ReceiptErr != nil {
		return j.ReceiptErr
	}
	return j.Receipt.AddsUp(ring.Source(c.UID, j.Target))
}
