// Package fence has the tables that a router is given: the members, who owns a key before and after a ring change,
// and which requests began with which table. It tells a router whether others have gone on without it.
//
// A router may be cut off from whoever writes its tables, while others go through a ring change.
// They can't tell it, but it has to reach the members to serve a key. So each router leaves the
// number of the newest table that it has read at each member (contract.RingNumberKey), and looks
// there for the numbers of others. One that has been left behind refuses.
//
// Neighbouring states of a ring change get along. So a router has done no harm yet when it first
// sees a later number, and others go two states ahead only
//
//   - when all have acknowledged the one between, or
//   - when whoever writes the tables has waited for contract.RingWaits. Then a router that takes
//     the next table first makes sure that its number, or the one before, has been at the members
//     for so long that those who are behind have seen it, and refuse (Fence.holds).
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
	// DefaultLookPeriod is of one member.
	DefaultLookPeriod = 2 * time.Second
	// ownTenths of LeftBehind are what a router has to take the table that it has waited with, after
	// it may: that is of the state next to its own. The one after that isn't written before
	// contract.RingWaits have passed.
	ownTenths = 3
	// firstLook bounds how long a router that starts waits for members.
	firstLook = 3 * time.Second
	// maxSightings are remembered.
	maxSightings = 64
)

// Config of a fence.
type Config struct {
	// Dialer of the connections to members, which are the fence's own.
	Dialer memcache.Dialer
	// LookTimeout bounds a look at a member, with the connection.
	LookTimeout time.Duration
	// LeftBehind is how long there may be a later table than the router's before it refuses keys.
	LeftBehind time.Duration
	// LookPeriod is the time between two looks at a member, more or less.
	LookPeriod time.Duration
	// Logf writes a line for people.
	Logf func(format string, args ...any)
}

// sighting of a number: since when others may know its table, and have left earlier ones.
type sighting struct {
	number int64
	at     time.Time
	// known is when this router learned of it: whoever is behind can have learned of it as late.
	known time.Time
	// own: this router was the first to read the table, as the next one after its own. Others then
	// wait for it as it waits for others (holds).
	own bool
}

// Fence knows how far other routers are. A nil fence is that of a ring that doesn't change.
type Fence struct {
	config Config
	// looks end with serving.
	serving context.Context
	looks   sync.WaitGroup
	// applied is the table that the router has.
	applied atomic.Pointer[Table]
	// seen are the sightings, in the order of their numbers and times.
	seen atomic.Pointer[[]sighting]

	mu sync.Mutex
	// read is the newest table that was read.
	read *Table
	// round of looks at all members.
	round   int
	members map[string]*watched // nil before it begins
	// looked: the first round is over.
	looked bool
	// older is the latest number before its own that a member had in the first round.
	older int64
	// waits says what a table that was read waits for.
	waits string
	// woke is when the router went on after it had stood still for so long that others may have gone
	// on without it; zero once it has looked again.
	woke time.Time
	// news tells that a member was looked at.
	news chan struct{}
}

// watched is a member.
type watched struct {
	round int // which was the last
	kick  chan struct{}
	stop  func()
}

// New returns the fence of a router with that table. It looks at no member before Begin, and no
// longer than serving lasts.
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

// Knows returns for how long there has been a table later than n, even if this router was the first to read it.
func (f *Fence) Knows(n int64) time.Duration {
	d, _, _ := f.laterThan(n)
	return d
}

// laterThan also tells whether this router was the first to read the table after n.
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

// Outdated tells whether others may do by now what does not go together with table n.
func (f *Fence) Outdated(n int64) bool {
	d, latest := f.Behind(n)
	return latest > 0 && d >= f.config.LeftBehind
}

// Woke is told that the router has stood still: its process was paused, or its machine.
func (f *Fence) Woke() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.woke = time.Now()
	f.lookAgain()
}

// Unsure tells whether it has woken, and has not looked at the members since. If it can't, it goes on
// with what it knows, as one that starts.
func (f *Fence) Unsure() bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unsure()
}

func (f *Fence) unsure() bool {
	if !f.woke.IsZero() && (f.lookedAtAll() || time.Since(f.woke) > firstLook) {
		f.woke = time.Time{}
	}
	return !f.woke.IsZero()
}

// sight notes a number. f.mu is locked.
func (f *Fence) sight(new sighting) {
	seen := *f.seen.Load()
	if last := seen[len(seen)-1]; new.number <= last.number {
		return
	}
	applied := f.applied.Load().Number
	all := make([]sighting, 0, len(seen)+1)
	for i, s := range seen {
		// What came before the present table is soon of no interest.
		if over := i+1 < len(seen) && seen[i+1].number <= applied && time.Since(seen[i+1].at) > time.Minute; !over {
			all = append(all, s)
		}
	}
	if len(all) == maxSightings { // it has been left behind long ago
		all = append(all[:maxSightings/2], all[maxSightings/2+1:]...)
	}
	new.known = time.Now()
	all = append(all, new)
	f.seen.Store(&all)
}

// settled is how long a number has to be at the members until those who are behind refuse:
// they look, wait, and give up what is under way.
func (f *Fence) settled() time.Duration {
	return f.config.LeftBehind + 3*f.config.LookPeriod
}

// Lets tells whether a table that was read may be taken.
func (f *Fence) Lets(t *Table) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Number > f.read.Number {
		f.read = t
		seen := sighting{number: t.Number, at: time.Now(), own: t.Before <= f.applied.Load().Number}
		if !seen.own && !t.AcknowledgedBefore() { // others have waited for it, and gone on
			seen.at = time.Time{}
		}
		f.sight(seen)
		f.lookAgain()
	}
	f.waits = f.holds(t)
	return f.waits == ""
}

// holds says what a table waits for.
func (f *Fence) holds(t *Table) string {
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

// standing is for how long this router has known that number, or a later one, so that there has been
// one at the members.
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

// Apply is told that the router has that table, and asks its members from now on.
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

// watchAll watches the members of the present table, and of the one that was read. f.mu is locked.
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

// Begin looks at each member that can be reached, before the first client is served. If a member
// has an older number, and not all routers are known to have gone on from there, it waits until
// those that have not refuse.
func (f *Fence) Begin(ctx context.Context) {
	f.mu.Lock()
	began, t := time.Now(), f.applied.Load()
	f.members = map[string]*watched{}
	f.lookAgain()
	f.mu.Unlock()
	f.wait(ctx, began.Add(firstLook), f.lookedAtAll)
	f.mu.Lock()
	// Those that are behind may have had pods that nobody sees any more, so what is said of
	// acknowledgements is not enough.
	holds := f.older > 0 && (!t.CameEarly() || f.older < t.Before)
	f.looked = !holds
	f.mu.Unlock()
	if holds {
		f.config.Logf("members know table %d, and this router has table %d: it waits %v for routers that are behind", f.older, t.Number, f.settled())
		f.wait(ctx, began.Add(f.settled()), func() bool { return false })
		f.mu.Lock()
		f.looked = true
		f.mu.Unlock()
	}
}

// Wait until no member is looked at any more.
func (f *Fence) Wait() {
	if f != nil {
		f.looks.Wait()
	}
}

// wait until it is done, or until then.
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

// Ready says why clients should go to another router, if so. It is ready when only its table's
// time is over: it may be the same for all routers.
func (f *Fence) Ready() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	looked := f.looked
	f.mu.Unlock()
	if !looked {
		return errors.New("it looks whether other routers ask by another ring")
	}
	number := f.applied.Load().Number
	if d, latest := f.Behind(number); latest > 0 && d >= f.config.LeftBehind {
		return fmt.Errorf("it is left behind: it has table %d of the rings, and other routers have table %d", number, latest)
	}
	return nil
}

// Offered is the table that was read and is not taken yet, nil for none, and what it waits for.
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
