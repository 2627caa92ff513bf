// Package move is the engine that moves the items of a source to the servers where clients look for them,
// each to its owner, and writes the receipt. A source is a departed member's volume (a drain), a running
// member (a move), or a member's generations (a replay).
package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

// Bounds of a move's memory and connections.
const (
	// batchMemory bounds the batches of all survivors together, in bytes, unless batches would become smaller
	// than smallBatch.
	batchMemory = 12 << 20
	largeBatch  = 512 << 10
	smallBatch  = 8 << 10
	// fewSurvivors is up to how many survivors get two connections each: one connection keeps only one of a
	// memcached's threads busy.
	fewSurvivors = 4
)

// Engine moves the items of one source to their owners.
type Engine struct {
	// SourceID goes into the receipt.
	SourceID string
	Source   item.Source
	Owner    routing.Owner
	// Servers are in the order of Owner's indexes.
	Servers []routing.Server
	// Lost marks the servers that are not connected to; nil for none.
	Lost []bool
	// Export, if not nil, is where the supervisor of a running member streams its items.
	Export *Export
	// Begin, if not nil, says when a running member's first item may be moved.
	Begin *contract.Begin
	// Leases means that routers take leases during the ring change, so a running member's items are moved
	// under leases, too.
	Leases bool
	// Dialer opens the connections to the servers.
	Dialer             memcache.Dialer
	UnreachableTimeout time.Duration
	// Limit bounds the added items per second, over all survivors.
	Limit pace.Limit
	// SkipExpiringWithin leaves out, as expired, items that expire within this time.
	SkipExpiringWithin time.Duration
	// Progress is called once a second and at every change of phase.
	Progress func(contract.Progress)
	// Log gets single lines for people.
	Log io.Writer

	// sending, if not nil, is called with the places of items before they are sent.
	sending func(places []int64) error
	// need is that of clients.
	need float64

	writers []*memcache.Writer
	leased  *leased // nil: without leases
	waits   waits
	// counts are the sums of the shares that have been read.
	counts    counts
	skipped   atomic.Int64 // items that never reach a writer
	bytesRead atomic.Int64 // of the source, the highest so far
	phase     atomic.Value // has a value of type running
	seconds   map[contract.Phase]float64
}

// Run adds items until every item has an outcome, or until it can't go on. The receipt says which.
func (e *Engine) Run(ctx context.Context) contract.Receipt {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.seconds, e.waits.Log = map[contract.Phase]float64{}, e.Log
	e.phase.Store(running{contract.PhaseConnecting, time.Now()})
	e.keepPlaces()
	e.makeWriters()
	defer e.closeWriters()
	stop := e.reportEverySecond()
	complete := false
	e.report()
	err := e.connect(ctx)
	if err == nil {
		err = e.apart(ctx)
	}
	member, live := e.Source.(*runningMember)
	copies, _ := e.Source.(*copying)
	if live && err == nil {
		err = e.allKeepCAS()
	}
	if live && err == nil && member.leaving != nil {
		err = e.checkLeaving(ctx, member)
	}
	if err == nil {
		e.Dialer.Places.KeepApart()
		if copies == nil && (!live || e.Begin == nil) {
			e.beginPhase(contract.PhaseAdding)
		}
		if copies != nil {
			complete, err = copies.copy(ctx)
		} else {
			err = e.move(ctx, &complete)
		}
	}
	stop()
	e.report()
	e.addPhaseTime(time.Now())
	e.closeWriters()
	if copies != nil {
		copies.end(ctx, complete)
	}
	if live {
		member.demand.pause()
		member.watch.close()
	}
	r := e.receipt(err)
	r.Complete, r.Settled = complete, live && complete && member.settled()
	if live && member.allStreamed {
		r.Reader = contract.ReaderStream
	}
	if copies != nil {
		copies.sumUp(&r)
	}
	e.countEvictions(ctx, &r)
	return r
}

// running is the present phase, and when it began.
type running struct {
	contract.Phase
	began time.Time
}

// beginPhase begins a phase.
func (e *Engine) beginPhase(phase contract.Phase) {
	now := time.Now()
	e.addPhaseTime(now)
	e.phase.Store(running{phase, now})
	e.report()
}

// addPhaseTime adds the time of the present phase.
func (e *Engine) addPhaseTime(now time.Time) {
	present := e.phase.Load().(running)
	e.seconds[present.Phase] += now.Sub(present.began).Seconds()
}

func (e *Engine) makeWriters() {
	connections := connectionsTo(len(e.Servers))
	size := batchMemory / len(e.Servers) / (memcache.Batches(connections) + e.readers())
	member, _ := e.Source.(*runningMember)
	for i, s := range e.Servers {
		o := memcache.Options{
			Address:            s.Address(),
			Dialer:             e.Dialer,
			UnreachableTimeout: e.UnreachableTimeout,
			Connections:        connections,
			BatchBytes:         min(largeBatch, max(smallBatch, size)),
			Waiting:            func(why string) { e.waits.Set(s.String(), why) },
			Sending:            e.sending,
		}
		if member != nil {
			o.Answered = func(connection int, a memcache.Answered) error { return member.answered(i, connection, a) }
			o.Unsent = member.unsent
		}
		if c, copies := e.Source.(*copying); copies {
			o.Answered = func(connection int, a memcache.Answered) error { return c.answered(i, connection, a) }
			o.Unsettled = func(a memcache.Answered) { c.withdrawUnchecked(i, a) }
			o.Unsent = c.unsent
		}
		e.writers = append(e.writers, memcache.NewWriter(o))
	}
}

// connectionsTo returns the number of connections to each server.
func connectionsTo(servers int) int {
	if servers <= fewSurvivors {
		return 2
	}
	return 1
}

func (e *Engine) closeWriters() {
	for _, w := range e.writers {
		w.Close()
	}
}

// connect waits until every survivor answers: a drain that started without one would have to keep, or lose,
// that survivor's share.
func (e *Engine) connect(ctx context.Context) error {
	return e.each(func(i int, w *memcache.Writer) error { return w.Connect(ctx) })
}

// noCASError means that a server runs with -C.
type noCASError struct{ server string }

func (e *noCASError) Error() string {
	return fmt.Sprintf("the memcached at %s keeps no CAS (-C): a delete would also delete what a client has just stored, so nothing is moved while it runs; "+
		"start it without -C, or set spec.routing.moves to Off", e.server)
}

// Failure returns the reason and the exit code: no retry helps.
func (e *noCASError) Failure() (reason string, exitCode int) { return reasonNoCAS, contract.ExitUsage }

// allKeepCAS returns an error if a server, the member or an owner, keeps no CAS.
func (e *Engine) allKeepCAS() error {
	for i, w := range e.writers {
		if (e.Lost == nil || !e.Lost[i]) && !w.Limits().CAS {
			return &noCASError{e.Servers[i].String()}
		}
	}
	return nil
}

// each calls do for all writers concurrently and returns the errors by server.
func (e *Engine) each(do func(i int, w *memcache.Writer) error) error {
	errs := make([]error, len(e.writers))
	var wg sync.WaitGroup
	for i, w := range e.writers {
		if e.Lost != nil && e.Lost[i] {
			continue
		}
		wg.Go(func() {
			if err := do(i, w); err != nil {
				errs[i] = e.withServer(i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// withServer adds to an error which server it is about.
func (e *Engine) withServer(i int, err error) error {
	name := e.Servers[i].String()
	if errors.As(err, new(*sourceError)) || errors.As(err, new(*survivorError)) {
		return err // from a delete at the member after an add
	}
	if errors.Is(err, item.ErrFault) {
		return err // from the source, whose values a writer still sends
	}
	if slices.Contains(e.waits.Sources, name) {
		return &sourceError{name, err}
	}
	return &survivorError{name, err}
}

// survivorError is an error about a survivor.
type survivorError struct {
	name string
	err  error
}

func (e *survivorError) Error() string { return fmt.Sprintf("survivor %s: %v", e.name, e.err) }
func (e *survivorError) Unwrap() error { return e.err }

// move reads the source, layer by layer, to its end. If parts of a layer are missing, it reads no older
// layer: the missing part may have had a newer value of the same key.
func (e *Engine) move(ctx context.Context, complete *bool) error {
	for _, layer := range item.LayersOf(e.Source) {
		if err := e.flush(); err != nil {
			return err
		}
		err := e.read(ctx, layer)
		if e.sending != nil && err != nil { // items that are marked as sent are not read again
			return cmp.Or(e.flush(), err)
		}
		if err != nil {
			return err
		}
		if err := layer.Lacking(); err != nil {
			return cmp.Or(e.flush(), err)
		}
	}
	*complete = true
	return e.flush()
}

// flush waits until every item that was handed to a writer has an outcome.
func (e *Engine) flush() error {
	return e.each(func(_ int, w *memcache.Writer) error { return w.Flush() })
}

// settle is flush, and returns how many items were rejected so far.
func (e *Engine) settle() (rejected int64, err error) {
	err = e.flush()
	for _, w := range e.writers {
		rejected += w.Tally().Rejected
	}
	return rejected, err
}

// read hands each live item of a layer to its owner's writer.
func (e *Engine) read(ctx context.Context, layer item.Source) error {
	now := presentAges()
	bands, err := e.bands(ctx, layer, now)
	if err != nil {
		return err
	}
	spread := pace.New(e.Limit)
	for _, b := range bands {
		if err := e.readBand(ctx, layer, spread, func(it *item.Item) bool {
			return b.Has(now.Of(it))
		}); err != nil {
			return err
		}
	}
	return nil
}

// mostReaders bounds the goroutines that read the source: a single one can be slower than many survivors.
const mostReaders = 4

// readers returns how many goroutines read the source. With a limit there is only one.
func (e *Engine) readers() int {
	if e.Limit != (pace.Limit{}) {
		return 1
	}
	return min(mostReaders, len(e.Servers), runtime.GOMAXPROCS(0))
}

// readBand makes one pass over the layer, for the items in the band.
func (e *Engine) readBand(ctx context.Context, layer item.Source, spread *pace.Pace, in func(*item.Item) bool) error {
	shares := item.Shares(ctx, layer, e.readers())
	errs := make([]error, len(shares))
	var reading sync.WaitGroup
	all := make([]share, len(shares))
	for n, items := range shares {
		s := &all[n]
		*s = share{Engine: e, pace: spread}
		for _, w := range e.writers {
			f := w.Feeder
			if n > 0 {
				f = w.NewFeeder()
			}
			s.feeders = append(s.feeders, f)
		}
		reading.Go(func() { errs[n] = s.read(ctx, items, in) })
	}
	reading.Wait()
	for n := range all {
		e.counts.add(&all[n].counts)
	}
	return firstCause(errs)
}

// firstCause ignores the errors of goroutines that were ended because another has failed.
func firstCause(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

// pause sends the present batches, and waits.
func (e *Engine) pause(ctx context.Context, d time.Duration) error {
	if err := e.each(func(_ int, w *memcache.Writer) error { return w.Send() }); err != nil {
		return err
	}
	return pace.Sleep(ctx, d)
}

// expiresSoon tells whether the item expires too soon to be added. The clock is read only for items that expire.
func (e *Engine) expiresSoon(it *item.Item) bool {
	return e.SkipExpiringWithin > 0 && it.ExpireAt != 0 &&
		it.ExpireAt <= time.Now().Add(e.SkipExpiringWithin).Unix()
}

// receipt sums up the writers' tallies and names the failure, if there is one.
func (e *Engine) receipt(err error) contract.Receipt {
	r := newReceipt(e.SourceID)
	r.Clean, r.SourceVersion = e.Source.Clean(), e.Source.Version()
	r.Found, r.Expired, r.Invalidated = e.counts.found, e.counts.expired, e.counts.invalidated
	r.Seconds = e.seconds
	if e.leased != nil {
		r.NoTextForm = e.leased.noTextForm
		r.Found += r.NoTextForm
	}
	tooLargeFlags := int64(0)
	for i, w := range e.writers {
		t := w.Tally()
		if e.leased != nil {
			t = e.leased.tallies[i]
		}
		tooLargeFlags += t.TooLargeFlags
		r.TooLarge += t.TooLarge
		r.Added += t.Added
		r.AlreadyPresent += t.Present
		r.Rejected += t.Rejected
		r.Invalidated += t.Invalidated
		r.Failed += w.Pending()
		r.Bytes += t.Bytes
		r.Survivors = append(r.Survivors, contract.Survivor{Name: e.Servers[i].String(),
			Added: t.Added, Present: t.Present, Rejected: t.Rejected})
	}
	switch {
	case err != nil:
		failReceipt(&r, err)
	case r.Rejected > 0 && e.copies():
		r.Message = fmt.Sprintf("%d items were not copied; the first: %s", r.Rejected, e.firstRefusal())
	case r.Rejected > 0:
		r.Reason, r.ExitCode = reasonRejected, contract.ExitRejected
		r.Message = fmt.Sprintf("%d of %d items were rejected; the first: %s", r.Rejected, r.Found, e.firstRefusal())
		if r.Rejected == tooLargeFlags { // a retry can't help, only other servers can
			r.Reason, r.ExitCode = reasonFlags, contract.ExitUsage
		}
	}
	return r
}

// copies tells whether the source is copied, and keeps its items.
func (e *Engine) copies() bool {
	_, copies := e.Source.(*copying)
	return copies
}

func (e *Engine) firstRefusal() string {
	for i, w := range e.writers {
		why := w.Refusal()
		if e.leased != nil {
			why = e.leased.refusals[i]
		}
		if why != "" {
			return e.Servers[i].String() + ": " + why
		}
	}
	return "no reason given"
}

// countEvictions compares the survivors' counters with those at the start. A survivor that no longer answers is
// left out; the items are counted anyway.
func (e *Engine) countEvictions(ctx context.Context, r *contract.Receipt) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = e.each(func(i int, w *memcache.Writer) error {
		if w.Limits().Version == "" {
			return nil
		}
		limits, err := e.Dialer.ReadLimits(ctx, e.Servers[i].Address(), patience)
		if err != nil {
			return err
		}
		before := w.Limits().Evictions
		if limits.Evictions < before {
			before = 0 // it restarted meanwhile
		}
		r.Survivors[i].Evictions, r.Survivors[i].EvictionsBefore = limits.Evictions-before, before
		return nil
	})
}
