package move

import (
	"context"
	"errors"

	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
)

// changesFollowed is how often an item may change at the member while it is moved.
// After that it waits for the next listing.
const changesFollowed = 10

// delete deletes at the member what was moved.
func (l *runningMember) delete(ctx context.Context, p *portion) error {
	for _, it := range l.deleteUnchanged(ctx, p) {
		if err := l.resolve(ctx, it); err != nil {
			return err
		}
	}
	return nil
}

// deleteUnchanged deletes the items of a portion together, and returns those that have
// to be looked at one by one: those that changed. It returns all if an owner refused an
// item, or if the connection is not the one by which the items were read: a member that
// restarted counts its CAS from the beginning.
func (l *runningMember) deleteUnchanged(ctx context.Context, p *portion) []*misplaced {
	var d memcache.Deletions
	var there []*misplaced
	for i := range p.items {
		it := &p.items[i]
		if it.gone || it.unreadable {
			continue
		}
		there = append(there, it)
		_ = d.Append(it.Key, it.CAS) // it was read by this key
	}
	if p.rejected || l.deleter.conn == nil || l.deleter.opened.After(p.began) {
		return there
	}
	conn, err := l.deleter.get(ctx, l.timeout)
	if err != nil {
		return there
	}
	indices, err := conn.Delete(&d)
	if err != nil {
		l.deleter.close()
		return there
	}
	changed := make([]*misplaced, len(indices))
	for n, i := range indices {
		changed[n] = there[i]
	}
	return changed
}

// resolve deletes an item that may have changed at the member since it was read. An
// item that goes on changing, and one that the owner doesn't have, stays for the next
// listing.
func (l *runningMember) resolve(ctx context.Context, it *misplaced) error {
	for range changesFollowed {
		var now *memcache.Value
		err := l.ask(ctx, &l.deleter, func(c *memcache.Conn) (err error) {
			now, err = c.Get(it.Key)
			return err
		})
		if err != nil || now == nil {
			return err
		}
		if it.State == item.Live {
			held, err := l.follow(ctx, it, now)
			if err != nil || !held {
				return err
			}
		}
		var d memcache.Deletions
		if err := d.Append(it.Key, now.CAS); err != nil {
			return err
		}
		var changed []int
		err = l.ask(ctx, &l.deleter, func(c *memcache.Conn) (err error) {
			changed, err = c.Delete(&d)
			return err
		})
		if err != nil || len(changed) == 0 {
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

// follow replaces the owner's value by the member's, if the owner's is still the
// member's earlier value: then nobody has stored a newer one there. It tells whether
// the owner has a value.
func (l *runningMember) follow(ctx context.Context, it *misplaced, now *memcache.Value) (held bool, err error) {
	sum, owner := l.sum(now), l.owner.Owner(it.Key)
	err = l.ask(ctx, &l.owners[owner], func(c *memcache.Conn) error {
		v, err := c.Get(it.Key)
		if held = v != nil; err != nil || !held {
			return err
		}
		switch l.sum(v) {
		case sum: // also if the answer to the Replace below was lost
			it.sum = sum
			return nil
		case it.sum:
			if now.Stale || v.CAS == 0 {
				return nil
			}
		default:
			return nil
		}
		if l.takes != nil && !l.takes(owner, now.Flags) {
			held = false // it stays at the member, and the owner's is out of date
			return drop(c, it.Key, v.CAS)
		}
		replaced, err := c.Replace(&item.Item{Key: it.Key, Value: now.Data, Flags: now.Flags,
			ExpireAt: l.ours(expiry(now, 0, l.now())), BinaryKey: it.BinaryKey}, v.CAS)
		if replaced {
			it.sum = sum
		}
		if errors.Is(err, memcache.ErrRefused) {
			held = false // the server dropped what it had
			return nil
		}
		return err
	})
	return held, err
}
