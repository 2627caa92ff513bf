package member

import (
	"context"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/warmfile"
)

// SetReplaySource lets tests step in between a generation and its replay.
func SetReplaySource(with func(context.Context, item.Source) item.Source) { replaySource = with }

// SetCount lets tests count what was saved.
func SetCount(with func(context.Context, *warmfile.Reader) (int64, error)) { count = with }
