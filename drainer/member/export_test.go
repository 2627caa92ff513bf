//go:build linux

package member

import (
	"context"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/test/wait"
)

// SetReplaySource replaces replaySource.
func SetReplaySource(with func(context.Context, item.Source) item.Source) { replaySource = with }

// CountHoweverLong lets a member count what it has saved, however busy the machine is.
func CountHoweverLong() { maxCount = wait.Long }

// SetHangClock replaces the clock by which memcached is judged to hang: next returns after a second. told is
// called when memcached is sent a request (pending), and when it has answered.
func SetHangClock(next func(ctx context.Context, toldToEnd bool) error, told func(pending bool)) {
	untilNextLook = func(ctx context.Context, of threads) (time.Duration, error) {
		return lookAtVitals, next(ctx, of == allThreads)
	}
	onPulse = told
}
