package move

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/export/wire"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// Export is where the supervisor of a running member streams its items, and how it can tell
// which ones others own: the routing that Engine.Owner is of.
type Export struct{ Address, Client, KeyPrefix string }

// In a move by the stream, an item takes three steps: its owner's writer adds it, when that
// has answered a batch the batch is deleted at the member, and then it has an outcome.
// Everything that may have happened to an item between its read and its delete shows in the
// delete's answer, as it does in a move by listings.
type streaming struct {
	*Export
	// soon tells which items expire too soon to be added, oldestFirst the order in which they
	// are wanted.
	soon        func(*item.Item) bool
	oldestFirst func() bool
	log         io.Writer

	on atomic.Bool
	// For one pass:
	ctx      context.Context
	began    time.Time
	removers map[lane]*remover
	// left has items that no writer was given, or sent, and refused whether an owner refused
	// the last one.
	left            portion
	notSent, refuse bool
}

// lane is a connection to an owner. Each has a remover, so that several of the member's
// threads delete.
type lane struct{ server, connection int }

const (
	// mostLeft is how many items that nobody is given are deleted at once.
	mostLeft = 1024
	// mostUnsure is how many passes in a row find nothing, and may have overlooked something,
	// before the member's memcached is asked for a listing.
	mostUnsure = 3
)

// streamed moves what the member's supervisor streams, pass after pass until one finds
// nothing. done is false if the rest has to be listed.
func (l *runningMember) streamed(ctx context.Context, yield func(*item.Item) bool) (done bool, err error) {
	l.connect(ctx)
	defer l.disconnect()
	l.makeRemovers()
	defer l.closeRemovers()
	s, err := l.surveyed(ctx)
	if err != nil || s == nil {
		return false, err
	}
	defer s.Close()
	l.expected.Add(s.Expected)
	last, unsure := some, 0
	for pass := 0; ; pass++ {
		if more, err := l.another(ctx, pass, last); err != nil || !more {
			return err == nil, err
		}
		rejected, err := l.pass(ctx, s, yield)
		var broken *brokenStream
		switch {
		case errors.As(err, &broken):
			fmt.Fprintf(l.log, "the member's memcached is asked for the rest of the items: %v\n", err)
			return false, nil
		case err != nil:
			return false, err
		case rejected:
			last = refused
		case s.End.Items == 0 && s.Complete:
			last, unsure = nothing, 0
		case s.End.Items > 0:
			last, unsure = some, 0
		default:
			if unsure++; unsure == mostUnsure {
				return false, nil
			}
			last = some
		}
	}
}

// surveyed opens a stream, and returns when it may begin. It is nil if the member's supervisor
// streams nothing.
func (l *runningMember) surveyed(ctx context.Context) (*wire.Stream, error) {
	for {
		s, err := l.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				fmt.Fprintf(l.log, "the member's memcached is asked for each item: %v\n", err)
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

// brokenStream is an error of the stream, which says nothing about the member.
type brokenStream struct{ error }

func (e *brokenStream) Unwrap() error { return e.error }

func (l *runningMember) open(ctx context.Context) (*wire.Stream, error) {
	r := wire.Request{Client: l.Client, KeyPrefix: l.KeyPrefix, Self: l.self, OldestFirst: l.oldestFirst()}
	for _, s := range l.servers {
		r.Servers = append(r.Servers, wire.Server{Name: s.Name, Host: s.Host, Port: s.Port})
	}
	d := l.dialer
	d.Settled = false // the member was asked
	return wire.Open(ctx, d, l.Address, &r, l.timeout)
}

// pass moves the items of one pass, and tells whether an owner refused some: it would refuse
// them again.
func (l *runningMember) pass(ctx context.Context, s *wire.Stream, yield func(*item.Item) bool) (rejected bool, err error) {
	if l.leased != nil {
		return l.leased.streamed(ctx, s)
	}
	before, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer l.on.Store(false)
	l.once.Begin(s.Expected)
	for it, err := range s.Items() {
		if err != nil {
			return false, l.breakOff(ctx, err)
		}
		if l.owner.Owner(it.Key) == l.self { // deleted here after an add here, it would be lost
			return false, l.breakOff(ctx, errOtherRouting)
		}
		if l.once.Had(it.Key) {
			continue
		}
		it.ExpireAt, it.LastAccess = l.ours(it.ExpireAt), it.LastAccess+l.behind.Load()
		if l.isLost(it.Key) {
			it.State = item.Invalidated
		}
		l.notSent, l.refuse = false, false
		if !yield(it) {
			return false, context.Canceled
		}
		if l.notSent || it.State != item.Live || l.soon(it) {
			if err := l.leave(ctx, it); err != nil {
				return false, err
			}
		}
	}
	after, err := l.settle()
	if err == nil {
		err = l.deleteLeft(ctx)
	}
	return after > before, err
}

// errOtherRouting: the two are of different versions.
var errOtherRouting = errors.New("the supervisor streams items that the member owns")

// breakOff waits for the deletes: the listing comes after them.
func (l *runningMember) breakOff(ctx context.Context, err error) error {
	_, settled := l.settle()
	return cmp.Or(settled, ctx.Err(), error(&brokenStream{err}))
}

// begin makes ready for a pass: what is deleted in it is deleted over connections from before
// it, so that no CAS is another process'.
func (l *runningMember) begin(ctx context.Context) (rejected int64, err error) {
	if rejected, err = l.settle(); err != nil {
		return 0, err
	}
	if err := l.sameProcess(ctx); err != nil {
		return 0, err
	}
	l.dialRemovers(ctx)
	l.ctx, l.began, l.left = ctx, time.Now(), portion{began: time.Now(), items: l.left.items[:0]}
	l.on.Store(true)
	return rejected, nil
}

// sameProcess is an error if the member is another process than before the last pass.
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

func (l *runningMember) makeRemovers() {
	l.removers = map[lane]*remover{}
	for i := range l.servers {
		if i == l.self || l.lost != nil && l.lost[i] {
			continue
		}
		for connection := range connectionsTo(len(l.servers)) {
			l.removers[lane{i, connection}] = l.remover()
		}
	}
}

// dialRemovers opens their connections. If that fails, the first use tries again.
func (l *runningMember) dialRemovers(ctx context.Context) {
	for _, r := range l.removers {
		_, _ = r.deleter.get(ctx, l.timeout)
	}
}

func (l *runningMember) closeRemovers() {
	for _, r := range l.removers {
		r.close()
	}
}

// unsent is told of items that a writer doesn't send.
func (l *runningMember) unsent(_ *item.Item, refused bool) { l.notSent, l.refuse = true, refused }

// leave deletes an item at the member that nobody is given. What an owner refuses is only
// deleted if the owner has a value of its own.
func (l *runningMember) leave(ctx context.Context, it *item.Item) error {
	left := misplaced{Item: *it}
	left.Key = bytes.Clone(it.Key)
	left.sum = l.sum(&memcache.Value{Data: it.Value, Flags: it.Flags})
	left.Value = nil
	if _, err := memcache.AppendFetch(nil, it.Key); err != nil {
		return nil // the text protocol doesn't carry its key: it stays
	}
	if l.refuse {
		return l.own.resolve(ctx, &left)
	}
	if l.left.items = append(l.left.items, left); len(l.left.items) < mostLeft {
		return nil
	}
	return l.deleteLeft(ctx)
}

func (l *runningMember) deleteLeft(ctx context.Context) error {
	if len(l.left.items) == 0 {
		return nil
	}
	err := l.own.delete(ctx, &l.left)
	l.left.items = l.left.items[:0]
	return err
}

// answered deletes at the member what an owner has answered.
func (l *runningMember) answered(server, connection int, a memcache.Answered) error {
	if !l.on.Load() {
		return nil
	}
	return l.removers[lane{server, connection}].batch(l.ctx, a)
}

// batch deletes the items of a batch.
func (l *remover) batch(ctx context.Context, a memcache.Answered) error {
	l.items = l.items[:0]
	for i := range a.Len() {
		l.items = append(l.items, l.moved(a, i))
	}
	p := portion{items: l.items, began: l.streaming.began, rejected: a.Refused}
	return l.delete(ctx, &p)
}

// moved is an item of a batch.
func (l *remover) moved(a memcache.Answered, i int) misplaced {
	key, cas := a.Key(i)
	data, flags := a.Value(i)
	return misplaced{Item: item.Item{Key: key, CAS: cas, Flags: flags, BinaryKey: a.BinaryKey(i)},
		sum: l.sum(&memcache.Value{Data: data, Flags: flags})}
}
