package move

import (
	"bytes"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
)

// A flush_all is obeyed (invariant 11). A client may flush the new owner before an item is copied there, and
// the old owner after the item was read. Then the copy is all that is left of the item, and a mover that
// finds nothing to delete at the old owner can't know why. So both owners are asked for their flushes at the
// beginning of a batch and at its end. An item that was last used before a flush of its new owner is not
// copied, but deleted. An item that was copied during a flush is taken back.
type flushing struct {
	// ask means that the present step also asks both owners for their flushes. latest has the last answers.
	ask    bool
	latest [2]memcache.Flushes
	// flushed has the owners' flushes at the beginning; began means that flushed is known.
	flushed [2]memcache.Flushes
	began   bool
	// copies are the copies since then. outdated are the outdated items that are still at the old owner.
	copies, outdated []copied
}

// copied is an item at its new owner, or an outdated one at its old owner.
type copied struct {
	key *LeasedKey
	// cas is 0 if the answer to the copy was lost. Then value and flags identify the copy.
	cas      uint64
	value    []byte
	flags    uint64
	accessed int64 // in Unix seconds
}

// mostKept bounds the size of a buffer, in bytes, that is kept for the next batch.
const mostKept = 2 * batchBytes

// begin records the flushes until now. If a batch is moved again, its first beginning counts.
func (l *KeyMover) begin() {
	if !l.began {
		l.flushed, l.began = l.latest, true
	}
}

// sendsCopy records a copy.
func (l *KeyMover) sendsCopy(m *keyMove) {
	value := m.fetched.Value
	l.copies = append(l.copies, copied{key: m.key, value: value[:len(value)-len("\r\n")], flags: m.fetched.Flags, accessed: m.accessed})
	m.copiedBefore, m.copied = m.copied, len(l.copies)
}

// heardCopy records the outcome of a copy.
func (l *KeyMover) heardCopy(m *keyMove, result ringchange.Result) {
	c := &l.copies[m.copied-1]
	if c.value = nil; result.Code == ringchange.Found {
		c.cas = result.CAS
		if m.copiedBefore > 0 { // the item has changed meanwhile, and has replaced its copy
			l.copies[m.copiedBefore-1].key = nil
		}
	} else {
		c.key = nil
	}
}

// obey takes back the items that were flushed meanwhile.
func (l *KeyMover) obey() error {
	if l.began {
		l.ask = true
		if err := l.round(); err != nil {
			return err
		}
		l.ask = false
		if err := l.takeBack(); err != nil {
			return &ownerError{ringchange.New, err}
		}
		if err := l.eraseOutdated(); err != nil {
			return &ownerError{ringchange.Old, err}
		}
	}
	clear(l.copies)
	clear(l.outdated)
	l.copies, l.outdated, l.began = l.copies[:0], l.outdated[:0], false
	return nil
}

// isFlushed tells whether an item that was last used at that time was flushed since the batch began.
func (l *KeyMover) isFlushed(accessed int64) bool {
	for p := range l.latest {
		if l.latest[p].Since(l.flushed[p]) && l.latest[p].Removes(accessed) {
			return true
		}
	}
	return false
}

// takeBack deletes copies at the new owner. Values that clients have stored there since stay.
func (l *KeyMover) takeBack() error {
	owner := l.Owners[ringchange.New]
	var flushed []copied
	for _, c := range l.copies {
		if c.key == nil || !l.isFlushed(c.accessed) {
			continue
		}
		if c.cas == 0 {
			v, err := owner.Get(c.key.Key)
			if err != nil {
				return err
			}
			if v == nil || v.Flags != c.flags || !bytes.Equal(v.Data, c.value) {
				continue
			}
			c.cas = v.CAS
		}
		flushed = append(flushed, c)
	}
	return erase(owner, flushed, func(k *LeasedKey, stays bool) {
		if !stays {
			k.Outcome, k.Bytes = keyFlushed, 0
		}
	})
}

// eraseOutdated deletes outdated items at the old owner.
func (l *KeyMover) eraseOutdated() error {
	return erase(l.Owners[ringchange.Old], l.outdated, func(k *LeasedKey, stays bool) {
		if stays {
			k.Outcome = keyLater
		}
	})
}

// erase deletes items that have not changed.
func erase(c *memcache.Conn, items []copied, done func(k *LeasedKey, stays bool)) error {
	var run memcache.Deletions
	for _, it := range items {
		if err := run.Append(it.key.Key, it.cas); err != nil {
			return err
		}
	}
	deleted, err := c.Delete(&run)
	if err != nil {
		return err
	}
	for _, it := range items {
		done(it.key, false)
	}
	for _, i := range deleted.Changed {
		done(items[i].key, true)
	}
	return nil
}
