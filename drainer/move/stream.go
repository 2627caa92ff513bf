package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"example.com/memcached-operator/drainer/export"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// Export is where the supervisor of a running member streams its items, and how the supervisor finds those
// that others own: by the routing of Engine.Owner.
type Export struct{ Address, Client, KeyPrefix string }

// streaming is the state of a move whose items the supervisor streams.
type streaming struct {
	*Export
	// oldestFirst tells in which order the items are wanted.
	oldestFirst func() bool
	log         io.Writer
	// allStreamed means that memcached was asked for no listing.
	allStreamed bool
}

// mostIncomplete is how many passes in a row may find nothing, and possibly overlook something, before the
// member's memcached is asked for a listing.
const mostIncomplete = 3

// streamed moves the items that the member's supervisor streams, pass after pass until one finds nothing.
// done is false if the rest has to be listed.
func (l *runningMember) streamed(ctx context.Context, yield func(*item.Item) bool) (done bool, err error) {
	l.connect(ctx)
	defer l.closeLinks()
	s, err := l.surveyed(ctx)
	if err != nil || s == nil {
		return false, err
	}
	defer s.Close()
	l.expect(s.Expected)
	last, incomplete := some, 0
	for pass := 0; ; pass++ {
		if more, err := l.anotherPass(ctx, pass, last); err != nil || !more {
			return err == nil, err
		}
		rejected, err := l.streamedPass(ctx, s, yield)
		var broken *brokenStream
		switch {
		case errors.As(err, &broken):
			fmt.Fprintf(l.log, "the member's stream of items ended early, and its memcached is asked for the rest: %v\n", err)
			return false, nil
		case err != nil:
			return false, err
		case rejected:
			last = refused
		case s.End.Items == 0 && s.Complete:
			last, incomplete = nothing, 0
		case s.End.Items > 0:
			last, incomplete = some, 0
		default:
			if incomplete++; incomplete == mostIncomplete {
				return false, nil
			}
			last = some
		}
	}
}

// surveyed opens a stream, and returns it when the move may begin. surveyed returns nil if the member's
// supervisor streams nothing.
func (l *runningMember) surveyed(ctx context.Context) (*export.Stream, error) {
	for {
		s, err := l.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(l.log, "the member streams no items, and its memcached is asked for each of them: %v\n", err)
			}
			return nil, ctx.Err()
		}
		begun, err := l.start(ctx, surveyEvery)
		if err == nil && begun {
			return s, nil
		}
		s.Close()
		if err != nil {
			return nil, err
		}
	}
}

// brokenStream is an error of the stream, which doesn't show how the member is.
type brokenStream struct{ error }

func (e *brokenStream) Unwrap() error { return e.error }

func (l *runningMember) open(ctx context.Context) (*export.Stream, error) {
	r := export.Request{Client: l.Client, KeyPrefix: l.KeyPrefix, Self: l.self, OldestFirst: l.oldestFirst()}
	for _, s := range l.servers {
		r.Servers = append(r.Servers, export.Listed{Name: s.Name, Host: s.Host, Port: s.Port})
	}
	d := l.dialer
	d.Settled = false // the member was asked already
	s, err := export.Open(ctx, d, l.Address, &r, l.timeout)
	if err == nil && s.Silence != nil {
		l.demand.hear(s.Silence)
	}
	return s, err
}

// streamedPass moves the items of one pass of the stream, and tells whether an owner refused some.
func (l *runningMember) streamedPass(ctx context.Context, s *export.Stream, yield func(*item.Item) bool) (rejected bool, err error) {
	if l.leased != nil {
		return l.leased.streamed(ctx, s)
	}
	if err := l.sameProcess(ctx); err != nil {
		return false, err
	}
	l.once.Begin(s.Expected)
	rejected, err = l.pass(ctx, l.misplaced(s.Items()), yield)
	l.demand.own.Add(s.Asked)
	return rejected, err
}

// misplaced yields the items of the stream, with times by our clock.
func (l *runningMember) misplaced(streamed iter.Seq2[*item.Item, error]) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		for it, err := range streamed {
			if err == nil && l.owner.Owner(it.Key) == l.self { // the member's own item would be added here, and then deleted
				err = errOtherRouting
			}
			if err != nil {
				yield(nil, &brokenStream{err})
				return
			}
			if l.once.Had(it.Key) {
				continue
			}
			it.ExpireAt, it.LastAccess = l.ours(it.ExpireAt), it.LastAccess+l.behind.Load()
			if l.isLost(it.Key) {
				it.State = item.Invalidated
			}
			if !yield(it, nil) {
				return
			}
		}
	}
}

// errOtherRouting: the mover and the supervisor are of different versions.
var errOtherRouting = errors.New("the member streams items that it owns itself: its supervisor knows another list of servers, or another client library")

// sameProcess returns an error if the member is another process than before the last pass.
func (l *runningMember) sameProcess(ctx context.Context) error {
	restarted := false
	err := l.ask(ctx, &l.own.deleter, func(c *memcache.Conn) (err error) {
		restarted, err = l.restarted(c)
		return err
	})
	if err == nil && restarted {
		return &sourceError{l.member.String(), errRestarted}
	}
	return err
}
