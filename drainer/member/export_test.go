//go:build linux

package member

import (
	"context"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// SetReplaySource lets tests step in between a generation and its replay.
func SetReplaySource(with func(context.Context, item.Source) item.Source) { replaySource = with }

// SetHangClock lets tests say when a second has passed for those who judge whether memcached hangs: next
// returns then. told is called when memcached is asked something (pending), and when it has answered.
func SetHangClock(next func(ctx context.Context, toldToEnd bool) error, told func(pending bool)) {
	untilNextLook = func(ctx context.Context, of threads) (time.Duration, error) {
		return lookAtVitals, next(ctx, of == allThreads)
	}
	onPulse = told
}
