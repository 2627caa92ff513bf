package memcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/item"
)

// ErrUnreachable means that a server did not answer for UnreachableTimeout.
var ErrUnreachable = errors.New("the server does not answer")

// Options of a Writer.
type Options struct {
	// Address is HOST:PORT; the name is resolved again for every connection.
	Address string
	// Dialer opens the connections.
	Dialer Dialer
	// UnreachableTimeout bounds how long the server may not answer before the Writer gives up.
	UnreachableTimeout time.Duration
	// Connections is the number of connections, at least 1. A memcached thread serves each, so more
	// connections keep more of the server's threads busy.
	Connections int
	// BatchBytes is the size after which a batch of adds is sent; a larger item is a batch of its own.
	BatchBytes int
	// Sending, if not nil, is called with the places of a batch's items before the first byte of the batch is
	// sent. After an error the Writer ends, and sends nothing. Connections call it concurrently.
	Sending func(places []int64) error
	// Answered, if not nil, is called with every batch that the server has answered, before its items have an
	// outcome, by the connection with that number. After an error the Writer ends.
	Answered func(connection int, a Answered) error
	// Unsettled, if not nil, is called when the Writer has ended, with every batch that may have been sent and has no
	// outcome. Connections call it concurrently.
	Unsettled func(a Answered)
	// Unsent, if not nil, is called by Add for an item that is not sent: the server would refuse it, or
	// clients have flushed the server since its last access.
	Unsent func(it *item.Item, refused bool)
	// Waiting, if not nil, is called with a sentence when the server stops answering, and with "" when it
	// answers again.
	Waiting func(why string)
}

// Limits of a server decide whether it can store an item.
type Limits struct {
	Version string
	// Place is the address where the server was reached.
	Place string
	// ItemSizeMax is -I: how many bytes an item may take, with its header.
	ItemSizeMax int
	// CAS means that each item takes 8 bytes more.
	CAS bool
	// FlagsBytes is how many bytes client flags take; see item.FlagsBytes.
	FlagsBytes int
	// EvictsToFree is false under -M: the server refuses when it is full.
	EvictsToFree bool
	// Evictions is the server's counter.
	Evictions int64
	// Room is how many bytes of items fit before the server evicts: -m less its items, and less a tenth of
	// these for the waste of slab classes.
	Room int64
	// Taken is the size of its items, in bytes.
	Taken int64
	// Free is how many bytes no slab class has yet: while there are some, no add is refused.
	Free int64
}

// Writer adds items to one server, and never overwrites a value there. Add, Send, Flush, Pending and Close
// are for one goroutine; other goroutines use their own Feeders.
type Writer struct {
	*Feeder
	options Options
	limits  Limits
	// marks means that the server takes an item's Mark.
	marks bool
	// careful means that the server may be short of memory. Then only items that get a Mark are added by commands
	// that may remove the present value.
	careful atomic.Bool

	free chan *batch
	work chan *batch
	// outstanding counts batches handed to the lanes and not yet settled.
	outstanding sync.WaitGroup
	ctx         context.Context
	cancel      context.CancelCauseFunc
	lanes       sync.WaitGroup

	// flushed is when clients last flushed the server, in Unix seconds of this machine's clock; 0 for never.
	// An item last accessed up to then must not come back.
	flushed atomic.Int64

	mu      sync.Mutex
	tally   Tally
	refusal string
	// handed counts the items given to Add; some of them may still be in batches.
	handed, done atomic.Int64
}

// mostAdds bounds the items of a batch: the bookkeeping of an item takes more room than a small item.
const mostAdds = 2048

// inFlight is the number of batches that a lane sends ahead of the answers.
const inFlight = 3

// Batches returns the number of batches that a Writer with so many connections has in memory: those being
// sent, one that waits, and the one being filled.
func Batches(connections int) int { return connections*(inFlight+1) + 2 }

// NewWriter returns a writer that isn't connected yet.
func NewWriter(o Options) *Writer {
	o.Connections = max(1, o.Connections)
	o.BatchBytes = max(1<<10, o.BatchBytes)
	if o.Waiting == nil {
		o.Waiting = func(string) {}
	}
	batches := Batches(o.Connections)
	w := &Writer{options: o, free: make(chan *batch, batches), work: make(chan *batch, 1)}
	w.Feeder = &Feeder{w: w}
	for range batches {
		w.free <- w.newBatch()
	}
	return w
}

// newBatch returns a batch. For a TLS connection the batch copies values, because TLS makes records of them.
func (w *Writer) newBatch() *batch { return newBatch(w.options.Dialer.TLSDir != "") }

// Feeder hands items to a Writer, for one goroutine. At the end, Send sends the last ones.
type Feeder struct {
	w       *Writer
	current *batch
}

// NewFeeder returns another Feeder. The Writer must be connected.
func (w *Writer) NewFeeder() *Feeder { return &Feeder{w, w.newBatch()} }

// Connect waits until the server answers, reads its limits, and starts the connections. ctx bounds the
// writer's whole life.
func (w *Writer) Connect(ctx context.Context) error {
	err := Insist(ctx, w.options.UnreachableTimeout, w.options.Waiting, func(timeout time.Duration) (err error) {
		w.limits, err = w.options.Dialer.ReadLimits(ctx, w.options.Address, timeout)
		return err
	})
	if err != nil {
		return err
	}
	w.start(ctx)
	return nil
}

func (w *Writer) start(ctx context.Context) {
	w.careful.Store(!w.limits.EvictsToFree || w.limits.Free < freeEnough)
	w.marks = w.limits.Marks()
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.current = <-w.free
	w.lanes.Go(w.watchMemory)
	for i := range w.options.Connections {
		w.lanes.Add(1)
		go func() {
			defer w.lanes.Done()
			l := lane{w: w, number: i}
			if err := l.run(w.ctx); err != nil {
				w.cancel(err)
			}
			if w.options.Unsettled != nil {
				for _, b := range l.resend {
					w.options.Unsettled(Answered{b, true})
				}
			}
		}()
	}
}

// Prepare opens the connections, which the first items would otherwise do.
func (w *Writer) Prepare() error {
	for range w.options.Connections {
		if err := w.sendBarrier(); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Limits returns the limits from when Connect returned.
func (w *Writer) Limits() Limits { return w.limits }

// Add copies an item and hands it over. Add waits while the server is slower than the caller. The error is
// why the Writer has given up.
func (f *Feeder) Add(it *item.Item) error {
	w := f.w
	form, ok := formOf(it.Key, it.BinaryKey)
	flushed := w.flushed.Load() // read once: a batch must not count as of a later flush than its items
	switch {
	case isFlushed(it.LastAccess, flushed):
		w.invalidate(it)
		return nil
	case !ok:
		w.reject(it, fmt.Sprintf("the key %.60q can't be written in the text protocol of memcached %s", it.Key, w.limits.Version))
		return nil
	case !w.Takes(it.Flags):
		w.reject(it, fmt.Sprintf("client flags of 2^32 and more, as %.60q has, need a memcached that is built with --enable-large-client-flags", it.Key))
		w.mu.Lock()
		w.tally.TooLargeFlags++
		w.mu.Unlock()
		return nil
	case w.limits.tooLarge(it):
		w.mu.Lock()
		w.tally.TooLarge++
		w.mu.Unlock()
		w.reject(it, fmt.Sprintf("an item of %d bytes is over the server's item size limit of %d bytes (-I)",
			it.Size(), w.limits.ItemSizeMax))
		return nil
	}
	if n := f.current.size(); n > 0 && (n+it.Size() > w.options.BatchBytes || len(f.current.adds) == mostAdds) {
		if err := f.Send(); err != nil {
			return err
		}
	}
	if len(f.current.adds) == 0 {
		f.current.flushed = flushed
	}
	if marked := w.marks && it.Mark != 0; form == plainKey && it.Over == 0 && !marked && w.careful.Load() {
		f.current.addClassic(it)
	} else {
		f.current.addQuiet(it, form, w.marks)
	}
	w.handed.Add(1)
	return nil
}

// Marks tells whether the server takes an item's Mark: from memcached 1.6.27 on, with CAS and evictions.
func (l Limits) Marks() bool {
	return l.CAS && l.EvictsToFree && !IsOlder(l.Version, firstMarks) && numbersOf(l.Version) != nil
}

const firstMarks = "1.6.27"

// Short tells whether the server may be short of memory.
func (w *Writer) Short() bool { return w.careful.Load() }

// Takes tells whether the server can store such client flags.
func (w *Writer) Takes(flags uint64) bool {
	return flags <= math.MaxUint32 || w.limits.FlagsBytes == item.LargeFlags
}

// Send sends the items handed over, without waiting for the answers.
func (f *Feeder) Send() error {
	if len(f.current.adds) == 0 {
		return context.Cause(f.w.ctx)
	}
	return f.sendBarrier()
}

// sendBarrier hands the current batch, which may be empty, to a connection and takes a free batch.
func (f *Feeder) sendBarrier() error {
	w := f.w
	f.current.barrier()
	w.outstanding.Add(1)
	select {
	case w.work <- f.current:
	case <-w.ctx.Done():
		w.outstanding.Done()
		return context.Cause(w.ctx)
	}
	select {
	case f.current = <-w.free:
		f.current.reset()
		return nil
	case <-w.ctx.Done():
		f.current = w.newBatch()
		return context.Cause(w.ctx)
	}
}

// Flush waits until the server has answered for every item handed over.
func (w *Writer) Flush() error {
	if err := w.Send(); err != nil {
		return err
	}
	settled := make(chan struct{})
	go func() {
		w.outstanding.Wait()
		close(settled)
	}()
	select {
	case <-settled:
		return nil
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
}

// Close ends the connections, flushed or not, and waits for them.
func (w *Writer) Close() {
	if w.cancel != nil {
		w.cancel(context.Canceled)
		w.lanes.Wait()
	}
}

// settle counts the outcome of a batch and frees the batch.
func (w *Writer) settle(b *batch, o outcome) {
	w.mu.Lock()
	w.tally.add(o.Tally)
	if w.refusal == "" {
		w.refusal = o.refusal
	}
	w.mu.Unlock()
	if strings.Contains(o.refusal, "out of memory") {
		w.careful.Store(true)
	}
	w.done.Add(int64(len(b.adds)))
	b.release()
	w.outstanding.Done()
	w.free <- b
}

// reject counts an item that the server would refuse, without sending it: a server that refuses a meta add
// for its size deletes its value for the key.
func (w *Writer) reject(it *item.Item, why string) {
	w.leaveUnsent(it, true, func() {
		w.tally.Rejected++
		if w.refusal == "" {
			w.refusal = why
		}
	})
}

// invalidate counts an item that clients have flushed since.
func (w *Writer) invalidate(it *item.Item) {
	w.leaveUnsent(it, false, func() { w.tally.Invalidated++ })
}

// leaveUnsent gives an item its outcome without sending it.
func (w *Writer) leaveUnsent(it *item.Item, refused bool, count func()) {
	if w.options.Unsent != nil {
		w.options.Unsent(it, refused)
	}
	w.handed.Add(1)
	w.done.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	count()
}

// Tally returns the counts of the items that the server has answered for.
func (w *Writer) Tally() Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally
}

// Refusal returns the first reason for a rejected item, "" if there is none.
func (w *Writer) Refusal() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}

// Done returns the number of items that have an outcome.
func (w *Writer) Done() int64 { return w.done.Load() }

// Pending returns the number of items that were handed over and have no outcome yet.
func (w *Writer) Pending() int64 { return w.handed.Load() - w.done.Load() }

// tooLarge follows memcached's item_size_ok: header, key and its NUL, flags if they aren't 0, CAS, value and
// its line end.
func (l Limits) tooLarge(it *item.Item) bool {
	size := 48 + len(it.Key) + 1 + len(it.Value) + 2
	if it.Flags != 0 {
		size += max(item.SmallFlags, l.FlagsBytes)
	}
	if l.CAS {
		size += 8
	}
	return l.ItemSizeMax > 0 && size > l.ItemSizeMax
}

// ReadLimits asks the server at address for its limits, and waits at most timeout.
func (d Dialer) ReadLimits(ctx context.Context, address string, timeout time.Duration) (Limits, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := d.Dial(ctx, address)
	if err != nil {
		return Limits{}, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	return c.Limits()
}

// Limits asks the server for its limits.
func (c *Conn) Limits() (Limits, error) {
	l := Limits{Place: c.conn.RemoteAddr().String()}
	var err error
	if l.Version, err = c.Version(); err != nil {
		return l, err
	}
	if err = c.Ping(); err != nil {
		return l, err
	}
	settings, err := c.Stats("settings")
	if err != nil {
		return l, err
	}
	stats, err := c.Stats("")
	if err != nil {
		return l, err
	}
	l.FlagsBytes = item.FlagsBytes(settings)
	l.CAS = settings["cas_enabled"] != "no"
	l.EvictsToFree = settings["evictions"] != "off"
	// If the server doesn't report it, no limit is known.
	l.ItemSizeMax, _ = strconv.Atoi(settings["item_size_max"])
	l.Evictions, _ = strconv.ParseInt(stats["evictions"], 10, 64)
	most, _ := strconv.ParseInt(stats["limit_maxbytes"], 10, 64)
	taken, _ := strconv.ParseInt(stats["bytes"], 10, 64)
	l.Room, l.Taken = max(0, most-taken-taken/10), taken
	l.Free, err = c.freeMemory(most, stats)
	return l, err
}
