package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/router/change"
)

// ringFilePeriod is how often the file is read again.
const ringFilePeriod = 200 * time.Millisecond

// ringFile is where a router is told of the rings.
type ringFile struct {
	path string
	text []byte
	// trouble with the file, for those who ask.
	trouble atomic.Pointer[string]
}

// read returns the table if the file has changed, else nil.
func (f *ringFile) read(ctx context.Context) (*router.Table, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, contract.MaxRingTable+1))
	if err != nil || bytes.Equal(text, f.text) {
		return nil, err
	}
	told, err := contract.ParseRingTable(text)
	if err != nil {
		return nil, err
	}
	t := &router.Table{Number: told.Number, Before: told.Before, Shared: told.Shared, Key: told.Key}
	if told.Until != nil {
		t.Until = *told.Until
	}
	for state := change.Stable; state <= change.Finish; state++ {
		if state.String() == told.State {
			t.State = state
		}
	}
	if t.New, err = ringOf(ctx, &told.New); err == nil && told.Old != nil {
		t.Old, err = ringOf(ctx, told.Old)
	}
	if err != nil {
		return nil, err
	}
	f.text = text
	return t, nil
}

// ringOf names the servers as the client does.
func ringOf(ctx context.Context, ring *contract.Ring) (router.Ring, error) {
	flags := routingFlags{client: ring.Client, keyPrefix: ring.KeyPrefix}
	for _, s := range ring.Servers {
		if err := flags.servers.Set(s); err != nil {
			return router.Ring{}, err
		}
	}
	var err error
	if flags.servers, err = flags.resolved(ctx, flags.servers); err != nil {
		return router.Ring{}, err
	}
	owner, err := flags.owner()
	return router.Ring{Servers: flags.servers, Owner: owner}, err
}

// watch offers each table to the router until ctx ends.
func (f *ringFile) watch(ctx context.Context, r *router.Router, logf func(format string, args ...any)) {
	said := ""
	var offered *router.Table
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(ringFilePeriod):
		}
		t, err := f.read(ctx)
		if t != nil {
			offered = t
		}
		if offered != nil {
			taken, refused := r.Offer(offered)
			if taken {
				logf("table %d: %v, %d members", offered.Number, offered.State, len(offered.New.Servers))
			}
			if taken || refused != nil {
				offered = nil
			}
			if err == nil {
				err = refused
			}
		}
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			logf("the table of the rings: %s", said)
			f.trouble.Store(&said)
		case err == nil && t != nil:
			said = ""
			f.trouble.Store(nil)
		}
	}
}

// acknowledged is what the router says of itself.
func (f *ringFile) acknowledged(r *router.Router) contract.RingAcknowledged {
	var a contract.RingAcknowledged
	a.Number = r.Number()
	a.Acknowledged, a.Waiting = r.Acknowledged()
	if why := f.trouble.Load(); why != nil {
		a.Error = fmt.Sprintf("%.200s", *why)
	}
	return a
}
