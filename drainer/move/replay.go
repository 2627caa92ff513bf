package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

// Replay adds the items of a source to a member, after live traffic: the only survivor is the member itself.
type Replay struct {
	Source item.Source
	// Sending is called with the places of items before they are sent.
	Sending func(places []int64) error
	Dialer  memcache.Dialer
	Address string
	// Silence bounds how long the member may not answer.
	Silence time.Duration
	Log     io.Writer
	// Progress is that of the Engine.
	Progress func(contract.Progress)
}

// Run replays until all items have an outcome, or reading or ctx ends. When reading ends, Run waits for the
// outcome of the items that have been read.
func (r *Replay) Run(ctx, reading context.Context) (contract.Receipt, error) {
	server, err := routing.ParseServer(r.Address)
	if err != nil {
		return contract.Receipt{}, fmt.Errorf("replay: %w", err)
	}
	e := Engine{Source: until(reading, r.Source), Owner: itself{}, Servers: []routing.Server{server}, Dialer: r.Dialer,
		UnreachableTimeout: r.Silence, Log: r.Log, Progress: r.Progress, sending: r.Sending}
	return e.Run(ctx), nil
}

// until returns a source that ends early when ctx ends.
func until(ctx context.Context, s item.Source) item.Source {
	ended := ctx.Done()
	return item.Through{Source: s, Sequence: func(items iter.Seq2[*item.Item, error]) iter.Seq2[*item.Item, error] {
		return func(yield func(*item.Item, error) bool) {
			for it, err := range items {
				select {
				case <-ended:
					yield(nil, errEnded)
					return
				default:
				}
				if !yield(it, err) {
					return
				}
			}
		}
	}}
}

// errEnded is the last thing that the source of until yields.
var errEnded = errors.New("the replay was told to end")

// itself is an owner function with one server.
type itself struct{}

func (itself) Owner([]byte) int { return 0 }
