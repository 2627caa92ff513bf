package memcache

import (
	"context"
	"fmt"
	"time"
)

// Bounds of the pause between two attempts to reach a server.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// patience measures how long a server has not answered, and paces the attempts
// to reach it.
type patience struct {
	limit time.Duration
	since time.Time
	pause time.Duration
}

// newPatience starts counting now.
func newPatience(limit time.Duration) patience {
	return patience{limit: limit, since: time.Now(), pause: firstPause}
}

// reset starts over: the server has answered, or is asked only now.
func (p *patience) reset() { p.since, p.pause = time.Now(), firstPause }

// attempt bounds a single attempt, so that a connection to a machine that is
// gone without a word is given up in time to try its successor.
func (p *patience) attempt() time.Duration {
	return min(p.limit, max(time.Second, min(p.limit/3, 30*time.Second)))
}

// wait pauses before the next attempt after the one that failed with err. It
// returns ErrUnreachable when the limit is used up, or the context's error.
func (p *patience) wait(ctx context.Context, err error) error {
	left := p.limit - time.Since(p.since)
	if left <= 0 {
		return fmt.Errorf("%w for %s: %w", ErrUnreachable, p.limit, err)
	}
	timer := time.NewTimer(min(left, p.pause))
	defer timer.Stop()
	p.pause = min(2*p.pause, lastPause)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
