// Package fence has the tables that a router is given: the members, who owns a key before and after a ring
// change, and which requests began with which table. A Fence tells a router whether the others have gone on without
// it.
//
// A router may be cut off from the operator, which writes its tables, while the other routers go through a
// ring change. The others can't tell the router, but the router has to reach the members to serve a key. So
// each router stores the number of the newest table that it has read at each member (contract.RingNumberKey),
// and looks there for the numbers of the others. A router that has been left behind refuses requests.
//
// Adjacent states of a ring change are compatible. So a router has done no harm yet when it first sees a
// later number, and the others go two states ahead only
//
//   - when all routers have acknowledged the state between, or
//   - when the operator has waited for contract.RingWaits. Then a router that takes the next table first
//     makes sure that its number, or the one before, has been at the members for so long that routers that
//     are behind have seen it, and refuse requests (Fence.holds).
package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/memcache"
)

const (
	// DefaultLeftBehind is short enough: a number is seen a few seconds after the table was written, and the
	// state after the next begins contract.RingWaits after that at the earliest.
	DefaultLeftBehind = 10 * time.Second
	// DefaultLookPeriod is the time between two looks at one member.
	DefaultLookPeriod = 2 * time.Second
	// ownTenths is the part of LeftBehind, in tenths, that a router has to take a table that it was the first
	// to read, once it may take it: that table has the state next to its own. The table after that isn't
	// written before contract.RingWaits have passed.
	ownTenths = 3
	// firstLook bounds how long a starting router waits for members.
	firstLook = 3 * time.Second
	// maxSightings bounds the remembered sightings.
	maxSightings = 64
)

// Config configures a fence.
type Config struct {
	// Dialer opens connections to members, which are the fence's own.
	Dialer memcache.Dialer
	// LookTimeout bounds a look at a member, with the connection.
	LookTimeout time.Duration
	// LeftBehind is how long there may be a later table than the router's before the router refuses keys.
	LeftBehind time.Duration
	// LookPeriod is the approximate time between two looks at a member.
	LookPeriod time.Duration
	// Logf logs a line for people.
	Logf func(format string, args ...any)
}

// sighting records a number, and since when other routers may know its table and no longer use earlier ones.
type sighting struct {
	number int64
	at     time.Time
	// known is when this router learned of the number: routers that are behind may have learned of it as
	// late.
	known time.Time
	// own means that this router was the first to read the table, as the next one after its own. The others
	// then wait for it as it waits for others (holds).
	own bool
}

// Fence knows how far the other routers are. A nil fence is for a ring that doesn't change.
type Fence struct {
	config Config
	// The looks at members end with serving.
	serving context.Context
	looks   sync.WaitGroup
	// applied is the table that the router uses.
	applied atomic.Pointer[Table]
	// seen has the sightings, in the order of their numbers and times.
	seen atomic.Pointer[[]sighting]

	mu sync.Mutex
	// read is the newest table that was read.
	read *Table
	// round is the present round of looks at all members.
	round   int
	members map[string]*watched // nil before it begins
	// looked means that the first round is over.
	looked bool
	// older is the latest number before its own that a member had in the first round.
	older int64
	// waits tells what the read table waits for.
	waits string
	// woke is when the router went on after it had stood still for so long that the others may have gone on
	// without it; zero once it has looked again.
	woke time.Time
	// news gets a value when a member was looked at.
	news chan struct{}
}

// watched is the state of a member that is looked at.
type watched struct {
	round int // the number of its last round
	kick  chan struct{}
	stop  func()
}

// New returns the fence of a router with that table. The fence looks at no member before Begin, nor after the end of
// serving.
func New(serving context.Context, config Config, t *Table) *Fence {
	f := &Fence{config: config, serving: serving, read: t, news: make(chan struct{}, 1)}
	f.applied.Store(t)
	f.seen.Store(&[]sighting{{number: t.Number, at: time.Now(), known: time.Now()}})
	return f
}

// Behind returns for how long there has been a table later than n, and the latest table's number; 0 if there
// is none. A table that this router was the first to read counts for less: see ownTenths.
func (f *Fence) Behind(n int64) (d time.Duration, latest int64) {
	d, latest, own := f.laterThan(n)
	if own {
		d -= f.settled() - f.config.LeftBehind + f.config.LeftBehind*ownTenths/10
	}
	return d, latest
}

// SeenLaterThan returns for how long there has been a table later than n, even if this router was the first to read it.
func (f *Fence) SeenLaterThan(n int64) time.Duration {
	d, _, _ := f.laterThan(n)
	return d
}

// laterThan returns for how long there has been a table later than n, the latest number, and whether this
// router was the first to read the table after n.
func (f *Fence) laterThan(n int64) (d time.Duration, latest int64, own bool) {
	if f == nil {
		return 0, 0, false
	}
	seen := *f.seen.Load()
	i := slices.IndexFunc(seen, func(s sighting) bool { return s.number > n })
	if i < 0 {
		return 0, 0, false
	}
	return time.Since(seen[i].at), seen[len(seen)-1].number, seen[i].own
}

// Outdated tells whether other routers may be in a state by now that is not compatible with table n.
func (f *Fence) Outdated(n int64) bool {
	d, latest := f.Behind(n)
	return latest > 0 && d >= f.config.LeftBehind
}

// StoodStill is called when the router has stood still, because its process or its machine was paused.
func (f *Fence) StoodStill() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.woke = time.Now()
	f.lookAgain()
}

// MustLook tells whether the router has woken, and has not looked at the members since. If it can't look, it
// goes on with what it knows, as a starting router does.
func (f *Fence) MustLook() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mustLook()
}

func (f *Fence) mustLook() bool {
	if !f.woke.IsZero() && (f.lookedAtAll() || time.Since(f.woke) > firstLook) {
		f.woke = time.Time{}
	}
	return !f.woke.IsZero()
}

// sight records a number. f.mu is locked.
func (f *Fence) sight(new sighting) {
	seen := *f.seen.Load()
	if last := seen[len(seen)-1]; new.number <= last.number {
		return
	}
	applied := f.applied.Load().Number
	all := make([]sighting, 0, len(seen)+1)
	for i, s := range seen {
		// Numbers from before the present table soon don't matter.
		if over := i+1 < len(seen) && seen[i+1].number <= applied && time.Since(seen[i+1].at) > time.Minute; !over {
			all = append(all, s)
		}
	}
	if len(all) == maxSightings { // the router was left behind long ago
		all = append(all[:maxSightings/2], all[maxSightings/2+1:]...)
	}
	new.known = time.Now()
	all = append(all, new)
	f.seen.Store(&all)
}

// settled returns how long a number has to be at the members until routers that are behind refuse requests:
// they look, wait, and give up their unanswered requests.
func (f *Fence) settled() time.Duration {
	return f.config.LeftBehind + 3*f.config.LookPeriod
}

// MayTake tells whether the router may take a table that was read.
func (f *Fence) MayTake(t *Table) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Number > f.read.Number {
		f.read = t
		seen := sighting{number: t.Number, at: time.Now(), own: t.Before <= f.applied.Load().Number}
		if !seen.own && !t.AcknowledgedBefore() { // the others have waited for it, and gone on
			seen.at = time.Time{}
		}
		f.sight(seen)
		f.lookAgain()
	}
	f.waits = f.waitsFor(t)
	return f.waits == ""
}

// waitsFor returns what a table waits for.
func (f *Fence) waitsFor(t *Table) string {
	applied := f.applied.Load().Number
	_, latest := f.Behind(t.Number)
	switch outdated := f.Outdated(applied); {
	case outdated && !f.lookedAtAll():
		return "it looks whether other routers have a later table"
	case outdated && latest > 0:
		return fmt.Sprintf("other routers have table %d", latest)
	case !t.AcknowledgedBefore() && f.standing(t.Before) < f.settled():
		return "routers that are behind have to learn of it first"
	}
	return ""
}

// standing returns for how long this router has known that number, or a later one, and so for how long the
// members have had one.
func (f *Fence) standing(number int64) time.Duration {
	for _, s := range *f.seen.Load() {
		if s.number >= number {
			return time.Since(s.known)
		}
	}
	return 0
}

func (f *Fence) lookedAtAll() bool {
	for _, w := range f.members {
		if w.round < f.round {
			return false
		}
	}
	return f.members != nil
}

// lookAgain begins a round. f.mu is locked.
func (f *Fence) lookAgain() {
	if f.members == nil {
		return
	}
	f.round++
	f.watchAll()
	for _, w := range f.members {
		select {
		case w.kick <- struct{}{}:
		default:
		}
	}
}

// Apply is called when the router uses that table, and watches the table's members from now on.
func (f *Fence) Apply(t *Table) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied.Store(t)
	if t.Number >= f.read.Number {
		f.read = t
		f.waits = ""
		f.sight(sighting{number: t.Number, at: time.Now()})
	}
	f.lookAgain()
}

// watchAll watches the members of the present table, and of the table that was read. f.mu is locked.
func (f *Fence) watchAll() {
	named := map[string]bool{}
	for _, t := range []*Table{f.applied.Load(), f.read} {
		for _, s := range t.Asked() {
			named[s.Address()] = true
		}
	}
	for address, w := range f.members {
		if !named[address] {
			w.stop()
			delete(f.members, address)
		}
	}
	for address := range named {
		if f.members[address] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(f.serving)
		w := &watched{round: f.round - 1, kick: make(chan struct{}, 1), stop: cancel}
		f.members[address] = w
		f.looks.Go(func() { f.watch(ctx, w, address) })
	}
}

// Begin looks at each member that can be reached, before the first client is served. If a member has an older
// number, and not all routers are known to have gone on from there, Begin waits until those that have not
// refuse requests.
func (f *Fence) Begin(ctx context.Context) {
	f.mu.Lock()
	began, t := time.Now(), f.applied.Load()
	f.members = map[string]*watched{}
	f.lookAgain()
	f.mu.Unlock()
	f.wait(ctx, began.Add(firstLook), f.lookedAtAll)
	f.mu.Lock()
	// The routers that are behind may have pods that the operator no longer sees, so the table's
	// acknowledgements are not enough.
	holds := f.older > 0 && (!t.CameEarly() || f.older < t.Before)
	f.looked = !holds
	f.mu.Unlock()
	if holds {
		f.config.Logf("the members have seen table %d, and this router begins with table %d: it waits %v for routers that still have an earlier table", f.older, t.Number, f.settled())
		f.wait(ctx, began.Add(f.settled()), func() bool { return false })
		f.mu.Lock()
		f.looked = true
		f.mu.Unlock()
	}
}

// Wait waits until no member is looked at any more.
func (f *Fence) Wait() {
	if f != nil {
		f.looks.Wait()
	}
}

// wait waits until done returns true, or until end.
func (f *Fence) wait(ctx context.Context, end time.Time, done func() bool) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for {
		f.mu.Lock()
		is := done()
		f.mu.Unlock()
		if is {
			return
		}
		select {
		case <-f.news:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Ready returns why clients should use another router; nil if they can use this one. The end of the table's time
// alone is no reason: it may have come for all routers.
func (f *Fence) Ready() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	looked := f.looked
	f.mu.Unlock()
	if !looked {
		return errors.New("it is still checking which table other routers have")
	}
	number := f.applied.Load().Number
	if d, latest := f.Behind(number); latest > 0 && d >= f.config.LeftBehind {
		return fmt.Errorf("it was left behind: it has table %d of the rings, and other routers have table %d", number, latest)
	}
	return nil
}

// Offered returns the table that was read and is not used yet, nil for none, and what it waits for.
func (f *Fence) Offered() (t *Table, waits string) {
	if f == nil {
		return nil, ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.Number <= f.applied.Load().Number {
		return nil, ""
	}
	return f.read, f.waits
}
