package drainer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/drainer/warmfile"
)

// replay brings the items of the generations that lie aside into the running
// memcached, behind live traffic, newest first. A generation goes when all of
// its items have an outcome; whatever ends the replay before that, the next
// start finds it again. As long as it runs, nothing is moved to the member or from it.
type replay struct {
	s       *supervisor
	address string
}

// replaySource lets tests step in between a generation and its replay.
var replaySource = func(_ context.Context, s Source) Source { return s }

// replayable tells whether a replay has something to begin with: older values must
// not come where newer ones can't be read.
func replayable(aside []warmfile.Generation) bool { return len(aside) > 0 && !aside[0].Failed }

// run replays until all is done or ctx ends.
func (r *replay) run(ctx context.Context) {
	r.all(ctx)
	if !r.s.pending || ctx.Err() != nil {
		return // or it ends, and what came now would come before what is left
	}
	err := memcache.Insist(ctx, maxSilence, func(string) {}, func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := r.s.dialer.Dial(ctx, r.address)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		return conn.Replayed()
	})
	if err != nil && ctx.Err() == nil {
		r.s.logf("drains and placements wait: they can't be told that the replay has ended: %v", err)
	}
}

func (r *replay) all(ctx context.Context) {
	aside, err := warmfile.Aside(r.s.volume)
	if err != nil {
		r.s.logf("no replay: %v", err)
		return
	}
	if !replayable(aside) {
		return
	}
	select {
	case <-r.s.record.answered:
	case <-ctx.Done():
		return
	}
	for i, g := range aside {
		if g.Failed {
			return
		}
		goOn, err := r.one(ctx, g, aside[i+1:])
		if ctx.Err() != nil {
			r.s.logf("the replay of %s was interrupted: the next start goes on", filepath.Base(g.Dir))
			return
		}
		if err != nil {
			r.s.logf("%s stays on the volume: %s", filepath.Base(g.Dir), reason(err))
		}
		if !goOn {
			return
		}
	}
}

// one replays one generation and tells whether the next older one may follow.
func (r *replay) one(ctx context.Context, g warmfile.Generation, older []warmfile.Generation) (goOn bool, err error) {
	name := filepath.Base(g.Dir)
	reader, err := warmfile.Open(g.Dir, warmfile.Options{})
	switch {
	case unvouched(err):
		r.s.logf("%s can't be replayed and is removed, with all that is older: %s", name, reason(err))
		return false, discardAll(append([]warmfile.Generation{g}, older...))
	case isUnrecoverable(err):
		return false, errors.Join(err, markFailed(g))
	case err != nil:
		return false, err
	}
	defer reader.Close()
	r.s.logf("replaying %s: about %d items", name, reader.Expected())
	receipt, err := r.migrate(ctx, reader)
	if err != nil {
		return false, err
	}
	switch {
	case receipt.ExitCode == contract.ExitUnrecoverable:
		return false, errors.Join(errors.New(receipt.Message), markFailed(g))
	case !receipt.Complete || receipt.Failed > 0:
		return false, errors.New(receipt.Message)
	}
	r.s.logf("replayed %s: %s", name, summary(&receipt))
	if receipt.Rejected > 0 {
		r.s.logf("%s", receipt.Message)
		r.s.record.note("the replay lost items: " + receipt.Message)
	}
	if err := r.s.record.secure(); err != nil {
		return false, err
	}
	if reader.Flushed() {
		return false, discardAll(append([]warmfile.Generation{g}, older...))
	}
	return true, discard(g)
}

// migrate is the drain's engine, with the member as its own only survivor.
func (r *replay) migrate(ctx context.Context, reader *warmfile.Reader) (contract.Receipt, error) {
	server, err := routing.ParseServer(r.address)
	if err != nil {
		return contract.Receipt{}, fmt.Errorf("replay: %w", err)
	}
	source := &flushable{Source: replaySource(ctx, reader), newer: r.s.record.flushed.Load}
	m := Migration{Source: source, Owner: itself{}, Servers: []routing.Server{server},
		Dialer: r.s.dialer, UnreachableTimeout: maxSilence, Log: r.s.std.Err}
	return m.Run(ctx), nil
}

// maxSilence bounds how long the member may not answer its own replay.
const maxSilence = time.Minute

// itself owns every key.
type itself struct{}

func (itself) Owner([]byte) int { return 0 }
