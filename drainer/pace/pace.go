// Package pace limits a move to a number of items, or bytes, per second, and has the pause between two attempts
// at something.
package pace

import (
	"context"
	"time"
)

// Sleep pauses for d. If ctx ends before that, Sleep returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Limit bounds a move's additions per second: items, and bytes of keys and values; 0 is no limit. If both are
// set, both apply.
type Limit struct{ Items, Bytes int64 }

// Pace spreads items over time, so that in no second there are more of them than the limit plus a burst of at
// most 50 ms' worth. Pace is pure: the caller has the clock, and waits.
type Pace struct {
	limit Limit
	// due is when the next item may go at the limit's exact rate.
	due time.Time
}

// burst is how far ahead of its time an item may go: a wait for each item would cost more than the item.
const burst = 50 * time.Millisecond

// New returns a Pace with that limit.
func New(l Limit) *Pace { return &Pace{limit: l} }

// Next counts an item of size bytes and returns how long it has to wait, 0 if it may go at once. Unused time
// is lost.
func (p *Pace) Next(now time.Time, size int) time.Duration {
	if p.limit == (Limit{}) {
		return 0
	}
	if p.due.Before(now) {
		p.due = now
	}
	ahead := p.due.Sub(now)
	p.due = p.due.Add(p.cost(size))
	if ahead < burst {
		return 0
	}
	return ahead
}

// cost returns the time that an item of size bytes takes at the limit.
func (p *Pace) cost(size int) time.Duration {
	var cost time.Duration
	if p.limit.Items > 0 {
		cost = time.Second / time.Duration(p.limit.Items)
	}
	if p.limit.Bytes > 0 {
		cost = max(cost, time.Duration(float64(size)/float64(p.limit.Bytes)*float64(time.Second)))
	}
	return cost
}
