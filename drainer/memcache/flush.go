package memcache

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// A flush_all is obeyed (invariant 11): what clients stored before it must not come back from a volume, nor
// from another server. memcached remembers only the time of the last flush ("oldest" in stats settings), and
// compares it with each item's last access. So does a Writer: it asks for each connection, and after each
// batch. An item of a batch that was being sent may have been added after the flush; the Writer takes it
// back.

// serverClock converts a server's own time, which counts from its start, to Unix seconds of this machine's
// clock.
type serverClock struct{ started int64 }

// at returns that time plus one second, because memcached's value is the second before the flush. 0 stays 0.
// A flush that was ordered for the future has not happened.
func (c serverClock) at(oldest int64) int64 {
	const second = 1
	if at := c.started + oldest + second; oldest > 0 && at <= time.Now().Unix()+second {
		return at
	}
	return 0
}

// Flushes are the flushes of a server so far.
type Flushes struct {
	// at is the time of the last one, in Unix seconds of this machine's clock; 0 for never.
	at    int64
	clock serverClock
	// effective is its time by the server's clock, and ordered is the number of flushes.
	effective, ordered int64
}

// AskFlushes is the request for a server's Flushes.
const AskFlushes = "stats\r\nstats settings\r\n"

// Flushes reads the answer to AskFlushes.
func (c *Conn) Flushes() (f Flushes, err error) {
	stats, err := c.heardStats("")
	if err != nil {
		return f, err
	}
	uptime, err := item.Uptime(stats)
	if err != nil {
		return f, fmt.Errorf("%w to stats: uptime=%q", ErrProtocol, stats["uptime"])
	}
	// memcached's clock is a minute ahead of its uptime (ITEM_UPDATE_INTERVAL).
	const ahead = 60
	f.clock = serverClock{time.Now().Unix() - uptime - ahead}
	f.ordered, _ = strconv.ParseInt(stats["cmd_flush"], 10, 64)
	settings, err := c.heardStats("settings")
	if err != nil {
		return f, err
	}
	oldest, err := strconv.ParseInt(settings["oldest"], 10, 64)
	if err != nil {
		return f, fmt.Errorf("%w to stats settings: oldest=%q", ErrProtocol, settings["oldest"])
	}
	if f.at = f.clock.at(oldest); oldest <= uptime+ahead { // otherwise it was ordered for the future
		f.effective = oldest
	}
	return f, nil
}

// Since tells whether the server was flushed after before.
func (f Flushes) Since(before Flushes) bool {
	return f.effective != 0 && (f.effective != before.effective || f.ordered > before.ordered)
}

// Removes tells whether the last flush may have removed an item that was last used at that time, in Unix seconds.
func (f Flushes) Removes(accessed int64) bool { return isFlushed(accessed, f.at) }

// lastFlush asks for the server's clock and the time of its last flush; 0 for never.
func (c *Conn) lastFlush() (serverClock, int64, error) {
	if err := c.Send([]byte(AskFlushes)); err != nil {
		return serverClock{}, 0, err
	}
	f, err := c.Flushes()
	return f.clock, f.at, err
}

// flushedAt records a flush, and returns the last known one.
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

// isFlushed tells whether a flush may have removed an item with that last access. Both are in Unix seconds;
// flushed is 0 for no flush.
func isFlushed(accessed, flushed int64) bool {
	// Each is a difference of whole seconds of two clocks, counted from a third one. So accessed may be less
	// than a second too late, and flushed less than two too early. A value that was flushed must not come back;
	// one that was stored within these seconds may be lost.
	const inexact = 2
	return flushed != 0 && accessed <= flushed+inexact
}

// takeBack deletes those items of a batch that were flushed, and may have been added after the flush. Values
// that a client has stored since stay.
func (l *lane) takeBack(b *batch, o *outcome) (err error) {
	defer item.Faults(&err)()
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
		if isFlushed(a.accessed, flushed) && b.mayBeOurs(a) {
			items = append(items, item.Item{Key: b.keyOf(a), Value: b.valueOf(a), Flags: a.flags})
		}
	}
	taken, err := conn.TakeBack(items)
	taken = min(taken, o.Added)
	o.Added -= taken
	o.Invalidated += taken
	return err
}

// TakeBack deletes, by CAS, those of the items that the server still has unchanged, and returns how many. An
// item that a client has stored since stays, even if only its CAS differs. A server without CAS keeps all of
// them.
func (c *Conn) TakeBack(items []item.Item) (taken int64, err error) {
	var request []byte
	for i := range items {
		if request, err = appendGet(request, items[i].Key, getFlags); err != nil {
			return 0, err
		}
	}
	// A server that can't send its answers stops reading.
	sent := make(chan error, 1)
	go func() { sent <- c.Send(request) }()
	d, err := c.unchanged(items)
	if err != nil {
		c.Close()
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	if err != nil || d.n == 0 {
		return 0, err
	}
	deleted, err := c.Delete(&d)
	return int64(d.n - len(deleted.Changed)), err
}

// unchanged reads the answers about the items, and returns the deletes of those that the server has unchanged.
func (c *Conn) unchanged(items []item.Item) (d Deletions, err error) {
	var v Value
	var data []byte
	for i := range items {
		it, found := &items[i], false
		if data, found, err = c.AppendFetched(&v, data[:0]); err != nil {
			return d, err
		}
		if found && v.CAS != 0 && v.Flags == it.Flags && bytes.Equal(v.Data, it.Value) {
			if err := d.Append(it.Key, v.CAS); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}
