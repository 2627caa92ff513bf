package move

import (
	"context"
	"fmt"
	"time"

	"example.com/memcached-operator/drainer/memcache"
)

// While a member's pod is replaced, its name may still lead to its old address, which another member may have
// by now. Items for both members would be stored at one, where the next ring change finds them as old values.
// And an item that is added to the member that has it already, under another name, is then deleted there.

// keepPlaces lets all connections of this move note where they lead to. Once they are known to be apart, a later
// connection that leads to the place of another ends the move: items may have gone to the wrong one of the two.
func (e *Engine) keepPlaces() {
	if e.Dialer.Places == nil {
		e.Dialer.Places = &memcache.Places{}
	}
}

// apart waits until no two servers are reached at the same place.
func (e *Engine) apart(ctx context.Context) error {
	places := make([]string, len(e.writers))
	for i, w := range e.writers {
		if e.Lost == nil || !e.Lost[i] {
			places[i] = w.Limits().Place
		}
	}
	twin := e.twin(places)
	if twin == nil {
		return nil
	}
	known := true
	waiting := func(why string) { e.waits.Set(twin.name, why) }
	err := memcache.Insist(ctx, e.UnreachableTimeout, waiting, func(timeout time.Duration) error {
		if known { // known from a moment ago
			known = false
			return twin.err
		}
		for i := range places {
			if places[i] == "" {
				continue
			}
			limits, err := e.Dialer.ReadLimits(ctx, e.Servers[i].Address(), timeout)
			if err != nil {
				return err
			}
			places[i] = limits.Place
		}
		if now := e.twin(places); now != nil {
			return now.err
		}
		return nil
	})
	if err != nil {
		return &survivorError{twin.name, err}
	}
	return nil
}

// twin returns the first server that is reached at the address of an earlier one; nil if there is none.
func (e *Engine) twin(places []string) *survivorError {
	at := map[string]int{}
	for i, place := range places {
		if first, taken := at[place]; taken && place != "" {
			return &survivorError{e.Servers[i].String(), fmt.Errorf("its name resolves to %s, which is the address of %s", place, e.Servers[first])}
		}
		at[place] = i
	}
	return nil
}
