package memcache

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// A flush_all is obeyed (invariant 11): what clients stored before it must not come back
// from a volume, nor from another server. memcached remembers only when it was flushed
// ("oldest" in stats settings), and compares that with each item's last access. So does a
// Writer: it asks for each connection, and after each batch. An item of a batch that was
// under way may have been added after the flush: it is taken back.

// serverClock converts a server's own time, which counts from its start, to Unix seconds of
// this machine's clock.
type serverClock struct{ started int64 }

// at is that time, with the second that follows: memcached means the second before the
// flush. 0 stays 0, and a flush that was ordered for the future is none yet.
func (c serverClock) at(oldest int64) int64 {
	const second = 1
	if at := c.started + oldest + second; oldest > 0 && at <= time.Now().Unix()+second {
		return at
	}
	return 0
}

// lastFlush asks for the server's clock, and when it was flushed last; 0 never.
func (c *Conn) lastFlush() (serverClock, int64, error) {
	stats, err := c.Stats("")
	if err != nil {
		return serverClock{}, 0, err
	}
	uptime, err := strconv.ParseInt(stats["uptime"], 10, 64)
	if err != nil {
		return serverClock{}, 0, fmt.Errorf("%w to stats: uptime=%q", ErrProtocol, stats["uptime"])
	}
	// memcached's clock is a minute ahead of its uptime (ITEM_UPDATE_INTERVAL).
	const ahead = 60
	clock := serverClock{time.Now().Unix() - uptime - ahead}
	settings, err := c.Stats("settings")
	if err != nil {
		return serverClock{}, 0, err
	}
	oldest, err := strconv.ParseInt(settings["oldest"], 10, 64)
	if err != nil {
		return serverClock{}, 0, fmt.Errorf("%w to stats settings: oldest=%q", ErrProtocol, settings["oldest"])
	}
	return clock, clock.at(oldest), nil
}

// flushedAt notes a flush, and returns the last one that is known.
func (w *Writer) flushedAt(at int64) int64 {
	for {
		known := w.flushed.Load()
		if at <= known {
			return known
		}
		if w.flushed.CompareAndSwap(known, at) {
			return at
		}
	}
}

// isFlushed tells whether a flush removes an item with that last access; both in Unix
// seconds, 0 for no flush.
func isFlushed(accessed, flushed int64) bool { return flushed != 0 && accessed <= flushed }

// takeBack deletes those items of a batch that were flushed, and may have been added after
// that. What a client has stored since stays.
func (l *lane) takeBack(b *batch, o *outcome) error {
	ctx, cancel := context.WithTimeout(l.w.ctx, l.w.options.UnreachableTimeout)
	defer cancel()
	conn, err := l.w.options.Dialer.Dial(ctx, l.w.options.Address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	flushed := l.w.flushed.Load()
	var items []item.Item
	for i := range b.adds {
		a := &b.adds[i]
		if isFlushed(a.accessed, flushed) && (b.again || !a.present) {
			items = append(items, item.Item{Key: b.keyOf(a), Value: b.valueOf(a), Flags: a.flags})
		}
	}
	taken, err := conn.TakeBack(items)
	taken = min(taken, o.Added)
	o.Added -= taken
	o.Invalidated += taken
	return err
}

// TakeBack deletes those of the items that the server has exactly so, by CAS, and returns
// how many: an item that a client has stored since stays, also if it differs by its CAS
// alone. A server without CAS keeps all of them.
func (c *Conn) TakeBack(items []item.Item) (taken int64, err error) {
	var d Deletions
	for i := range items {
		it := &items[i]
		v, err := c.Get(it.Key)
		if err != nil {
			return 0, err
		}
		if v != nil && v.CAS != 0 && v.Flags == it.Flags && bytes.Equal(v.Data, it.Value) {
			if err := d.Append(it.Key, v.CAS); err != nil {
				return 0, err
			}
		}
	}
	if d.n == 0 {
		return 0, nil
	}
	deleted, err := c.Delete(&d)
	return int64(d.n - len(deleted.Changed)), err
}
