package main

import (
	"slices"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// If all clients ask routers, the design promises that a scaling makes no application miss a key, find an older
// value, or find a deleted key again, even if routers, movers or the operator are killed. The exceptions are
// here, each with its reason. An exception holds from its event to the next rest, when everything has been
// found:
//
//   - A member died. Its items are back when they are replayed, after live traffic. Until then its keys
//     are missing, and a delete doesn't reach what is still to be replayed (docs/hazards.md, A member
//     crashes). A set does: a replay only adds.
//   - A member died, and the replay came while routers stored keys at two places (prepare and settle).
//     A router in prepare looks at the old owner first, and finds there what the replay has just added,
//     although another one has stored the key again (docs/router.md, "One case is left").
//   - The ring changed without the states, because a member was not ready, or the size changed again:
//     then routers are as any other client that follows the list (docs/router.md, In a cluster). A
//     write to a key's old place may be lost, so its old value is there until the key is written again.
//
// An old value is never excused because a member died, but for the second.

// span is a time. Its end is zero while it goes on.
type span struct{ from, to time.Time }

func (s span) meets(o span) bool {
	return (s.to.IsZero() || !o.from.After(s.to)) && (o.to.IsZero() || !s.from.After(o.to))
}

func meets(all []span, s span) bool { return slices.ContainsFunc(all, s.meets) }

func open(all *[]span, now time.Time) {
	if n := len(*all); n == 0 || !(*all)[n-1].to.IsZero() {
		*all = append(*all, span{from: now})
	}
}

func end(all []span, now time.Time) {
	if n := len(all); n > 0 && all[n-1].to.IsZero() {
		all[n-1].to = now
	}
}

// trouble has the cluster's events.
type trouble struct {
	mu sync.Mutex
	// deaths are those of members, and abrupt the ring changes without the states, each to the next rest. early
	// are the times in which routers may have been in prepare or settle.
	deaths, abrupt, early []span
	table                 *contract.RingTable
	// changes counts the ring changes through all states.
	changes int
}

const (
	// The API server says in whole seconds when a table was written. By this process's clock, routers may have
	// used it earlier, by hears, or it was written later, by lags.
	hears = 2 * time.Second
	lags  = time.Second
)

// died notes that a member is about to be killed.
func (t *trouble) died(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	open(&t.deaths, now)
}

// rested notes that the cluster is at rest, and everything was found.
func (t *trouble) rested(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end(t.deaths, now)
	end(t.abrupt, now)
}

// told notes that routers are told of a table, which was written at that time.
func (t *trouble) told(next *contract.RingTable, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.table
	if before != nil && next.Number <= before.Number {
		return
	}
	t.table = next
	if before != nil && !follows(before, next) {
		open(&t.abrupt, now.Add(-hears))
	}
	if isEarly(next) {
		open(&t.early, now.Add(-hears))
	} else {
		end(t.early, now.Add(lags))
	}
	if before != nil && before.State == contract.RingFinish && next.State == contract.RingStable && follows(before, next) {
		t.changes++
	}
}

// isEarly tells whether a router may be in prepare or settle. A router may be until all have acknowledged
// move: then finish begins.
func isEarly(t *contract.RingTable) bool {
	return t.State == contract.RingPrepare || t.State == contract.RingSettle || t.State == contract.RingMove
}

// follows tells whether the states allow one table after the other.
func follows(before, next *contract.RingTable) bool {
	same := before.Old != nil && next.Old != nil && sameRing(before.Old, next.Old) && sameRing(&before.New, &next.New)
	switch {
	case before.State == contract.RingStable && next.State == contract.RingStable,
		before.State == contract.RingFinish && next.State == contract.RingStable:
		return sameRing(&before.New, &next.New)
	case before.State == contract.RingStable:
		return next.State == contract.RingPrepare && sameRing(&before.New, next.Old)
	case before.State == contract.RingPrepare && next.State == contract.RingStable: // the ring change was given up
		return sameRing(before.Old, &next.New)
	}
	return same && (next.State == before.State || next.State == before.State+1)
}

func sameRing(a, b *contract.Ring) bool {
	return a.Client == b.Client && a.KeyPrefix == b.KeyPrefix && slices.Equal(a.Servers, b.Servers)
}

// suspicion is a request that contradicts acknowledged writes.
type suspicion struct {
	what finding
	// write is the one that the request contradicts. deleted is set if that was a delete.
	write   span
	deleted bool
	request span
	text    string
}

// excuse returns why the design allows it, or "" if the design promises that it can't be.
func (t *trouble) excuse(s *suspicion) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch died := meets(t.deaths, s.request); {
	case meets(t.abrupt, s.request), s.what == old && meets(t.abrupt, span{s.write.from, s.request.to}):
		return "the ring had changed without the states"
	case s.what == missing && died:
		return "missing: a member had died"
	case s.deleted && meets(t.deaths, s.write):
		return "back after a delete that came before a dead member's replay was over"
	case s.what == old && died && meets(t.early, s.request):
		return "old: a dead member was replayed in prepare or settle"
	}
	return ""
}

// counts returns the numbers of ring changes through the states, and without them.
func (t *trouble) counts() (changes, abrupt int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changes, len(t.abrupt)
}
