package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router/change"
)

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
//     for so long that those who are behind have seen it, and refuse (holds).

const (
	// DefaultLeftBehind is short enough: a number is seen a few seconds after the table was written, and the
	// state after the next begins contract.RingWaits after that at the earliest.
	DefaultLeftBehind = 10 * time.Second
	// DefaultLookPeriod is of one member.
	DefaultLookPeriod = 2 * time.Second
	// firstLook bounds how long a router that starts waits for members.
	firstLook = 3 * time.Second
	// maxSightings are remembered.
	maxSightings = 64
)

// answerLate is the answer for keys that others may ask of another member.
const answerLate = "SERVER_ERROR the ring changes, and this router has not been told how\r\n"

// sighting of a number: since when others may know its table, and have left earlier ones.
type sighting struct {
	number int64
	at     time.Time
	// own: this router was the first to read the table, as the next one after its own. Others then
	// wait for it as it waits for others (holds).
	own bool
}

// fence knows how far other routers are. A nil fence is that of a ring that doesn't change.
type fence struct {
	router *Router
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
	// news tells that a member was looked at.
	news chan struct{}
}

// watched is a member.
type watched struct {
	round int // which was the last
	kick  chan struct{}
	stop  func()
}

func newFence(r *Router) *fence {
	f := &fence{router: r, read: r.config.Table, news: make(chan struct{}, 1)}
	f.seen.Store(&[]sighting{{number: f.read.Number, at: time.Now()}})
	return f
}

// behind is for how long there has been a later number than n, and the latest one; 0 for none.
func (f *fence) behind(n int64) (d time.Duration, latest int64) {
	if f == nil {
		return 0, 0
	}
	seen := *f.seen.Load()
	if latest = seen[len(seen)-1].number; latest <= n {
		return 0, 0
	}
	for i := range seen {
		if s := &seen[i]; s.number > n {
			d = time.Since(s.at)
			if s.own {
				d -= f.settled() - f.router.config.LeftBehind
			}
			return d, latest
		}
	}
	return 0, 0
}

// late tells whether others may do by now what does not go together with table n.
func (f *fence) late(n int64) bool {
	d, latest := f.behind(n)
	return latest > 0 && d >= f.router.config.LeftBehind
}

// sight notes a number. f.mu is locked.
func (f *fence) sight(new sighting) {
	seen := *f.seen.Load()
	if last := seen[len(seen)-1]; new.number <= last.number {
		return
	}
	applied := f.router.table.Load().Number
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
	all = append(all, new)
	f.seen.Store(&all)
}

// acknowledgedBefore tells whether every router had acknowledged the table before, when whoever
// writes tables went on: it had not waited for as long as it does.
func (t *Table) acknowledgedBefore() bool {
	return t.Before == 0 || t.Number-t.Before < int64(contract.RingWaits/time.Second)
}

// over tells whether the table's time is over.
func (t *Table) over() bool { return !t.Until.IsZero() && time.Now().After(t.Until) }

// settled is how long a number has to be at the members until those who are behind refuse:
// they look, wait, and give up what is under way.
func (f *fence) settled() time.Duration {
	return f.router.config.LeftBehind + 3*f.router.config.LookPeriod
}

// Offer tells the router of a table that was read. It takes the table at once, or false: when it
// is offered again, after some time. Until then Acknowledged says why.
func (r *Router) Offer(t *Table) (taken bool, err error) {
	if err := r.check(t); err != nil {
		return false, err
	}
	if r.fence != nil && !r.fence.lets(t) {
		return false, nil
	}
	return true, r.Apply(t)
}

// lets tells whether a table may be taken.
func (f *fence) lets(t *Table) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Number > f.read.Number {
		f.read = t
		f.sight(sighting{t.Number, time.Now(), t.Before <= f.router.table.Load().Number})
		f.lookAgain()
	}
	f.waits = f.holds(t)
	return f.waits == ""
}

// holds says what a table waits for.
func (f *fence) holds(t *Table) string {
	applied := f.router.table.Load().Number
	_, latest := f.behind(t.Number)
	switch late := f.late(applied); {
	case late && !f.lookedAtAll():
		return "it looks whether other routers have a later table"
	case late && latest > 0:
		return fmt.Sprintf("other routers have table %d", latest)
	case !t.acknowledgedBefore() && f.standing(t.Before) < f.settled():
		return "routers that are behind have to learn of it first"
	}
	return ""
}

// standing is for how long there has been that number, or a later one.
func (f *fence) standing(number int64) time.Duration {
	for _, s := range *f.seen.Load() {
		if s.number >= number {
			return time.Since(s.at)
		}
	}
	return 0
}

func (f *fence) lookedAtAll() bool {
	for _, w := range f.members {
		if w.round < f.round {
			return false
		}
	}
	return f.members != nil
}

// lookAgain begins a round. f.mu is locked.
func (f *fence) lookAgain() {
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

// applied: the router asks other members from now on.
func (f *fence) applied(t *Table) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.Number >= f.read.Number {
		f.read, f.waits = t, ""
		f.sight(sighting{number: t.Number, at: time.Now()})
	}
	f.lookAgain()
}

// watchAll watches the members of the present table, and of the one that was read. f.mu is locked.
func (f *fence) watchAll() {
	named := map[string]bool{}
	for _, t := range []*Table{f.router.table.Load(), f.read} {
		for _, s := range t.asked() {
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
		ctx, cancel := context.WithCancel(f.router.serving)
		w := &watched{round: f.round - 1, kick: make(chan struct{}, 1), stop: cancel}
		f.members[address] = w
		f.router.goroutines.Go(func() { f.watch(ctx, w, address) })
	}
}

// begin looks at each member that can be reached, before the first client is served. If a member
// has an older number, and not all routers are known to have gone on from there, it waits until
// those that have not refuse.
func (f *fence) begin(ctx context.Context) {
	f.mu.Lock()
	began, t := time.Now(), f.router.table.Load()
	f.members = map[string]*watched{}
	f.lookAgain()
	f.mu.Unlock()
	f.wait(ctx, began.Add(firstLook), f.lookedAtAll)
	f.mu.Lock()
	holds := f.older > 0 && (!t.acknowledgedBefore() || f.older < t.Before)
	f.looked = !holds
	f.mu.Unlock()
	if holds {
		f.router.config.Logf("members know table %d, and this router has table %d: it waits %v for routers that are behind", f.older, t.Number, f.settled())
		f.wait(ctx, began.Add(f.settled()), func() bool { return false })
		f.mu.Lock()
		f.looked = true
		f.mu.Unlock()
	}
}

// wait until it is done, or until then.
func (f *fence) wait(ctx context.Context, end time.Time, done func() bool) {
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

// ready says why clients should go to another router, if so. It is ready when only its table's
// time is over: it may be the same for all routers.
func (f *fence) ready() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	looked := f.looked
	f.mu.Unlock()
	if !looked {
		return errors.New("it looks whether other routers ask by another ring")
	}
	number := f.router.table.Load().Number
	if d, latest := f.behind(number); latest > 0 && d >= f.router.config.LeftBehind {
		return fmt.Errorf("it is left behind: it has table %d of the rings, and other routers have table %d", number, latest)
	}
	return nil
}

// offered is the table that was read and is not taken yet, nil for none, and what it waits for.
func (f *fence) offered() (t *Table, waits string) {
	if f == nil {
		return nil, ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.read.Number <= f.router.table.Load().Number {
		return nil, ""
	}
	return f.read, f.waits
}

// judge decides which keys the loop still serves. late: not those that may have moved. lost: none,
// since nobody knows which have moved. Twice the bound after a later number than its own was
// seen, that may be another ring change.
func (l *loop) judge() {
	t := l.table
	if t == nil {
		return
	}
	number := t.Number
	if l.next != nil {
		number = l.next.Number
	}
	bound := l.router.config.LeftBehind
	behind, latest := l.router.fence.behind(number)
	left := latest > 0 && behind >= bound
	l.late = left || t.over()
	lost := left && (t.State == change.Stable || behind >= 2*bound)
	if lost != l.lost && l == l.router.loops[0] {
		if lost {
			l.router.config.Logf("table %d is left behind: others have table %d; all requests are refused", number, latest)
		} else {
			l.router.config.Logf("table %d is no longer left behind", number)
		}
	}
	l.lost = lost
}

// late tells whether others may do by now what doesn't go together with the job.
func (j *job) late() bool {
	e := j.slot.epoch
	return j.loop.late || e != nil && j.loop.router.fence.late(e.number)
}
