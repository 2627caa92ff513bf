package move

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// In a move an item takes three steps: its owner's writer adds it; when the owner has answered a batch, the
// batch is deleted at the member; then the item has an outcome. The answer to the delete shows everything
// that may have happened to an item since it was read.

// passing is the state of a pass.
type passing struct {
	// soon tells whether an item expires too soon to be added.
	soon func(*item.Item) bool
	on   atomic.Bool
	// The following is for one pass.
	ctx   context.Context
	began time.Time
	// own deletes items that no server is given, removers delete those that the owners have.
	own      *remover
	removers map[lane]*remover
	// left has items that no writer was given, or that a writer did not send. refused tells whether an owner
	// refused the last one.
	left            portion
	notSent, refuse bool
}

// lane is a connection to an owner. Each has a remover, so that several of the member's threads delete.
type lane struct{ server, connection int }

// mostLeft is how many of the items that no server is given are deleted at once.
const mostLeft = 1024

// portion has items that are deleted at the member together.
type portion struct {
	items []misplaced
	// began is a moment before the first item was read.
	began time.Time
	// rejected means that an owner refused some of these items.
	rejected bool
}

// misplaced is an item of the member that another server owns.
type misplaced struct {
	item.Item
	// sum identifies the value that was read; before is the sum of an earlier value that was moved, 0 for
	// none.
	sum, before uint64
	// tried means that the item may have been deleted at the member, and the answer was lost.
	tried bool
}

// pass moves the items of one pass, and tells whether an owner refused some, which it would refuse again. If
// a stream breaks, its items that are on their way are moved, too, because the listing that follows doesn't
// know what was read before.
func (l *runningMember) pass(ctx context.Context, items iter.Seq2[*item.Item, error], yield func(*item.Item) bool) (rejected bool, err error) {
	before, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer l.on.Store(false)
	broken := l.readAll(ctx, items, yield)
	if broken != nil && !errors.As(broken, new(*brokenStream)) {
		return false, broken
	}
	after, err := l.settle()
	if err == nil {
		err = l.deleteLeft(ctx)
	}
	if err == nil && broken != nil {
		err = cmp.Or(ctx.Err(), broken)
	}
	return after > before, err
}

func (l *runningMember) readAll(ctx context.Context, items iter.Seq2[*item.Item, error], yield func(*item.Item) bool) error {
	for it, err := range items {
		if err != nil {
			return err
		}
		l.notSent, l.refuse = false, false
		if !yield(it) {
			return context.Canceled
		}
		if l.notSent || it.State != item.Live || l.soon(it) {
			if err := l.leave(ctx, it); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin prepares a pass. Its deletes use connections from before the pass, so that no CAS is of another
// process.
func (l *runningMember) begin(ctx context.Context) (rejected int64, err error) {
	if rejected, err = l.settle(); err != nil {
		return 0, err
	}
	l.dialRemovers(ctx)
	l.ctx, l.began, l.left = ctx, time.Now(), portion{began: time.Now(), items: l.left.items[:0]}
	l.on.Store(true)
	return rejected, nil
}

// connect opens the connections for deletes, before the first item is read. If that fails, the first use
// tries again.
func (l *runningMember) connect(ctx context.Context) {
	l.reader, l.own = l.link(l.member), l.remover()
	_, _ = l.own.deleter.get(ctx, l.timeout)
	l.makeRemovers()
}

func (l *runningMember) disconnect() {
	l.reader.close()
	if l.own != nil {
		l.own.close()
	}
}

// closeLinks closes the connections of the passes; the next pass opens others.
func (l *runningMember) closeLinks() {
	l.disconnect()
	l.closeRemovers()
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

// dialRemovers opens the removers' connections. If that fails, the first use tries again.
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

// unsent is called for items that a writer doesn't send.
func (l *runningMember) unsent(_ *item.Item, refused bool) { l.notSent, l.refuse = true, refused }

// leave deletes an item at the member that no server is given. An item that its owner refuses is only deleted
// if the owner has a value of its own.
func (l *runningMember) leave(ctx context.Context, it *item.Item) error {
	if it.CAS == 0 || !memcache.HasTextForm(it.Key) {
		return nil // the item is gone, or stays because the text protocol can't carry its key
	}
	left := misplaced{Item: *it, sum: l.sum(it.Value, it.Flags)}
	left.Key, left.Value, left.Page = bytes.Clone(it.Key), nil, nil
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

// answered deletes at the member the items that an owner has answered for.
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
	p := portion{items: l.items, began: l.passing.began, rejected: a.Refused}
	return l.delete(ctx, &p)
}

// moved returns an item of a batch.
func (l *remover) moved(a memcache.Answered, i int) misplaced {
	key, cas := a.Key(i)
	data, flags := a.Value(i)
	return misplaced{Item: item.Item{Key: key, CAS: cas, Flags: flags, BinaryKey: a.BinaryKey(i)},
		sum: l.sum(data, flags)}
}
