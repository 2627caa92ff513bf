package move

import (
	"context"
	"errors"
	"time"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// changesFollowed is how often an item may change at the member while it is moved. After that the item waits
// for the next listing.
const changesFollowed = 10

// remover deletes at the member the items that their owners have got, for one goroutine.
type remover struct {
	*runningMember
	deleter link // deletes at the member, and looks at what changed
	owners  []link
	// The following is for one portion, whose first item was read after began.
	began time.Time
	run   memcache.Deletions
	items []misplaced
	there []*misplaced
}

func (l *runningMember) remover() *remover {
	r := &remover{runningMember: l, deleter: l.link(l.member), owners: make([]link, len(l.servers))}
	for i, s := range l.servers {
		r.owners[i] = l.link(s)
	}
	return r
}

func (l *remover) close() {
	l.deleter.close()
	for i := range l.owners {
		l.owners[i].close()
	}
}

// delete deletes the moved items at the member. An item that a client has deleted there meanwhile, or that
// was evicted, is also deleted at its owner.
func (l *remover) delete(ctx context.Context, p *portion) error {
	l.began = p.began
	changed, missing := l.deleteUnchanged(ctx, p)
	for _, it := range missing {
		if err := l.withdraw(ctx, it); err != nil {
			return err
		}
	}
	for _, it := range changed {
		if err := l.resolve(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// deleteUnchanged deletes the items of a portion together. deleteUnchanged returns the items that changed or
// were moved before, which have to be looked at one by one, and the items that the member doesn't have any
// more. All items count as changed if an owner refused one, or if the items were read over another
// connection, because a member that has restarted counts its CAS values from the beginning.
func (l *remover) deleteUnchanged(ctx context.Context, p *portion) (changed, missing []*misplaced) {
	l.run.Reset()
	there := l.there[:0]
	for i := range p.items {
		it := &p.items[i]
		if it.State == item.Live {
			there = append(there, it)
		}
	}
	l.give(there...)
	there = there[:0]
	for i := range p.items {
		it := &p.items[i]
		if it.before != 0 {
			changed = append(changed, it)
			continue
		}
		there = append(there, it)
		_ = l.run.Append(it.Key, it.CAS) // the text protocol can carry this key
	}
	l.there = there
	if p.rejected || l.deleter.conn == nil || l.deleter.opened.After(p.began) {
		return append(changed, there...), nil
	}
	conn, err := l.deleter.get(ctx, l.timeout)
	if err != nil {
		return append(changed, there...), nil
	}
	l.demand.own.Add(l.run.Len())
	deleted, err := conn.Delete(&l.run)
	if err != nil {
		l.deleter.close()
		for _, it := range there {
			it.tried = true
		}
		return append(changed, there...), nil
	}
	for _, i := range deleted.Changed {
		changed = append(changed, there[i])
	}
	for _, i := range deleted.Missing {
		missing = append(missing, there[i])
	}
	return changed, missing
}

// resolve deletes an item that may have changed at the member since it was read. An item that keeps changing,
// and an item that the owner doesn't have, stay for the next listing. An item that was stale when it was
// read, and that a client has stored again, also stays.
func (l *remover) resolve(ctx context.Context, it *misplaced) error {
	for range changesFollowed {
		var now *memcache.Value
		err := l.ask(ctx, &l.deleter, func(c *memcache.Conn) (err error) {
			l.demand.own.Add(1)
			now, err = c.Get(it.Key)
			return err
		})
		switch {
		case err != nil:
			return err
		case now == nil:
			return l.withdraw(ctx, it)
		case it.State == item.Live && now.Outdated():
			err = l.withdraw(ctx, it)
		case it.State == item.Live:
			var held bool
			if held, err = l.follow(ctx, it, now); err == nil && !held {
				return nil
			}
		case !now.Outdated() && !l.isLost(it.Key):
			return nil
		}
		if err != nil {
			return err
		}
		if done, err := l.deleteOne(ctx, it, now.CAS); err != nil || done {
			return err
		}
	}
	return nil
}

// drop deletes a server's value for the key if it still has that CAS.
func drop(c *memcache.Conn, key []byte, cas uint64) error {
	var d memcache.Deletions
	if err := d.Append(key, cas); err != nil {
		return err
	}
	_, err := c.Delete(&d)
	return err
}

// deleteOne deletes the item at the member if it has that CAS, and tells whether it is gone.
func (l *remover) deleteOne(ctx context.Context, it *misplaced, cas uint64) (done bool, err error) {
	var d memcache.Deletions
	if err := d.Append(it.Key, cas); err != nil {
		return false, err
	}
	var deleted memcache.Deleted
	err = l.ask(ctx, &l.deleter, func(c *memcache.Conn) (err error) {
		l.demand.own.Add(d.Len())
		if deleted, err = c.Delete(&d); err != nil {
			it.tried = true
		}
		return err
	})
	if err == nil && len(deleted.Missing) > 0 {
		return true, l.withdraw(ctx, it)
	}
	return len(deleted.Changed) == 0, err
}

// withdraw deletes the copy of an item at its owner, if the copy is unchanged. If the answer to a delete at
// the member was lost, it is unknown whether this move or a client deleted the item there: the copy may be
// the only one, and stays. The copy also stays if the member is another process by now: a process that comes
// back without its items has deleted none.
func (l *remover) withdraw(ctx context.Context, it *misplaced) error {
	if it.State != item.Live || it.tried {
		return nil
	}
	if l.deleter.opened.After(l.began) {
		if err := l.stillRuns(ctx, &l.deleter); err != nil {
			return err
		}
	}
	return l.ask(ctx, &l.owners[l.owner.Owner(it.Key)], func(c *memcache.Conn) error {
		v, err := c.Get(it.Key)
		if err != nil || v == nil || v.CAS == 0 {
			return err
		}
		if sum := l.sum(v.Data, v.Flags); sum != it.sum && sum != it.before {
			return nil
		}
		return drop(c, it.Key, v.CAS)
	})
}

// follow replaces the owner's value by the member's, if the owner's value is still an earlier value of the
// member, which was read in this pass or moved in an earlier one: then no client has stored a newer value
// there. follow tells whether the owner has a value.
func (l *remover) follow(ctx context.Context, it *misplaced, now *memcache.Value) (held bool, err error) {
	sum, owner := l.sum(now.Data, now.Flags), l.owner.Owner(it.Key)
	err = l.ask(ctx, &l.owners[owner], func(c *memcache.Conn) error {
		v, err := c.Get(it.Key)
		if held = v != nil; err != nil || !held {
			return err
		}
		switch l.sum(v.Data, v.Flags) {
		case sum: // also if the answer to the Replace below was lost
			it.sum = sum
			return nil
		case it.sum, it.before:
			if v.CAS == 0 {
				return nil
			}
		default:
			return nil
		}
		if l.takes != nil && !l.takes(owner, now.Flags) {
			held = false // the item stays at the member, and the owner's value is out of date
			return drop(c, it.Key, v.CAS)
		}
		replaced, err := c.Replace(&item.Item{Key: it.Key, Value: now.Data, Flags: now.Flags,
			ExpireAt: l.ours(now.ExpireAt(0, l.now())), BinaryKey: it.BinaryKey}, v.CAS)
		if replaced {
			it.sum = sum
			l.give(it)
		}
		if errors.Is(err, memcache.ErrRefused) {
			held = false // the server dropped its value
			return nil
		}
		return err
	})
	return held, err
}
