package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router"
)

// ringFilePeriod is how often the file is read again.
const ringFilePeriod = 200 * time.Millisecond

// ringFile takes the router's tables from a file. The operator can also send a table by HTTP, without waiting
// for the kubelet to update the file.
type ringFile struct {
	path string
	// given has tables that came by HTTP. newest is the number of the last of them, which the file has only
	// later.
	given  chan *router.Table
	newest int64
	// text is the table that the router has taken, last is the text that was read last.
	text, last []byte
	// refused is the text of a table that the router doesn't take; why says the reason.
	refused []byte
	why     error
	// trouble is the current problem with the file, for requests that ask for the state.
	trouble atomic.Pointer[string]
}

// read returns the file's table if the router has not taken it yet, else nil.
func (f *ringFile) read(ctx context.Context) (*router.Table, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, contract.MaxRingTable+1))
	switch {
	case err != nil || bytes.Equal(text, f.text):
		return nil, err
	case f.why != nil && bytes.Equal(text, f.refused):
		return nil, f.why
	case bytes.Equal(text, f.last): // it was offered before
		return nil, nil
	}
	told, err := contract.ParseRingTable(text)
	if err != nil {
		return nil, err
	}
	if told.Number <= f.newest {
		f.last = text
		return nil, nil
	}
	t, err := tableOf(ctx, told)
	if err == nil {
		f.last = text
	}
	return t, err
}

// tableOf converts a table; the members have the names by which the routing knows them.
func tableOf(ctx context.Context, told *contract.RingTable) (t *router.Table, err error) {
	t = &router.Table{
		Number: told.Number, Before: told.Before, Acknowledged: told.Acknowledged, State: told.State,
		Shared: told.Shared, Key: told.Key, Signer: told.Signer,
	}
	if t.New, err = ringOf(ctx, &told.New); err == nil && told.Old != nil {
		t.Old, err = ringOf(ctx, told.Old)
	}
	return t, err
}

// take handles PUT /ring: a table that comes by HTTP, with its signature.
func (f *ringFile) take(ctx context.Context, r *router.Router, text []byte, signature string) (status int, err error) {
	has := r.Table()
	if !contract.RingSigned(text, has.Key, has.Signer, signature) {
		return http.StatusForbidden, errors.New("this table is not signed by the writer of the table that this router has")
	}
	told, err := contract.ParseRingTable(text)
	if err != nil {
		return http.StatusBadRequest, err
	}
	if told.Number > contract.NumberAt(contract.ClockOf(has.Number).Add(contract.NumbersAhead)) {
		return http.StatusBadRequest, fmt.Errorf("table %d is more than %v ahead of this router's clock, and of its own table", told.Number, contract.NumbersAhead)
	}
	t, err := tableOf(ctx, told)
	if err != nil {
		return http.StatusBadRequest, err
	}
	t.Key, t.Signer = has.Key, has.Signer
	select {
	case f.given <- t:
		return http.StatusOK, nil
	case <-ctx.Done():
		return http.StatusServiceUnavailable, ctx.Err()
	}
}

// taken records that the router has the table that was read last.
func (f *ringFile) taken() { f.text, f.why = f.last, nil }

// refuse records that the router doesn't take the table that was read last.
func (f *ringFile) refuse(why error) { f.refused, f.why = f.last, why }

// ringOf converts a ring; the servers have the names that the client uses.
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
		case t := <-f.given:
			if t.Number > r.Number() {
				f.newest, offered = t.Number, t
			}
		case <-time.After(ringFilePeriod):
		}
		t, err := f.read(ctx)
		if t != nil {
			offered = t
		}
		if offered != nil {
			taken, refused := r.Offer(offered)
			switch {
			case taken:
				f.taken()
				logf("table %d: %v, %d members", offered.Number, offered.State, len(offered.New.Servers))
			case refused != nil && offered.Number != f.newest:
				f.refuse(refused)
			}
			if taken || refused != nil {
				offered = nil
			}
			if err == nil {
				err = refused
			}
		}
		switch {
		case err == nil: // also if the file has the router's table again
			said = ""
			f.trouble.Store(nil)
		case err.Error() != said:
			said = err.Error()
			logf("the table of the rings can't be used: %s", said)
			why := said
			f.trouble.Store(&why)
		}
	}
}

// acknowledged returns the router's report.
func (f *ringFile) acknowledged(r *router.Router) contract.RingAcknowledged {
	var a contract.RingAcknowledged
	a.Number = r.Number()
	a.Acknowledged, a.Waiting = r.Acknowledged()
	a.Proof = contract.ProveAcknowledged(a.Acknowledged, r.Table().Key)
	if why := f.trouble.Load(); why != nil {
		a.Error = fmt.Sprintf("%.200s", *why)
	}
	return a
}
