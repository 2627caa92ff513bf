package member

import (
	"context"

	"example.com/memcached-operator/drainer/item"
)

// SetReplaySource lets tests step in between a generation and its replay.
func SetReplaySource(with func(context.Context, item.Source) item.Source) { replaySource = with }
