package memcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/memcached-operator/drainer/pace"
)

// Bounds of the pause between two attempts to reach a server.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// patience measures how long a server has not answered, and paces the attempts to reach it.
type patience struct {
	limit time.Duration
	since time.Time
	pause time.Duration
}

// newPatience starts counting now.
func newPatience(limit time.Duration) patience {
	return patience{limit: limit, since: time.Now(), pause: firstPause}
}

// reset starts over, because the server has answered, or is needed only from now on.
func (p *patience) reset() { p.since, p.pause = time.Now(), firstPause }

// attempt bounds a single attempt, so that an attempt to reach a vanished machine ends in time to try its
// successor.
func (p *patience) attempt() time.Duration {
	return min(p.limit, max(time.Second, min(p.limit/3, 30*time.Second)))
}

// wait pauses after an attempt that failed with err. wait returns ErrUnreachable when the limit is used up,
// or the context's error. A server in a replay does answer, so the limit doesn't apply: a replay ends with
// its supervisor at the latest.
func (p *patience) wait(ctx context.Context, err error) error {
	if errors.Is(err, ErrReplaying) {
		p.since = time.Now()
	}
	left := p.limit - time.Since(p.since)
	if left <= 0 {
		return fmt.Errorf("%w for %s: %w", ErrUnreachable, p.limit, err)
	}
	pause := min(left, p.pause)
	p.pause = min(2*p.pause, lastPause)
	return pace.Sleep(ctx, pause)
}

// Insist repeats try until it succeeds: for limit at most, counted from the first attempt. Insist
// doesn't repeat after an ErrProtocol or a TwinError. try is told how long it may take. waiting is
// told why it waits, and "" when try has succeeded.
func Insist(ctx context.Context, limit time.Duration, waiting func(why string), try func(timeout time.Duration) error) error {
	p := newPatience(limit)
	for {
		err := try(p.attempt())
		switch {
		case err == nil:
			waiting("")
			return nil
		case errors.Is(err, ErrProtocol), errors.As(err, new(*TwinError)):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		waiting(err.Error())
		if err := p.wait(ctx, err); err != nil {
			return err
		}
	}
}
