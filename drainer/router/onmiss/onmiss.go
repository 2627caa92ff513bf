// Package onmiss lets routers ask another cache, the source, for the keys that members miss, and keep the
// items. The source is only read.
//
// An item that a client has stored or deleted at the members must not come back from the source, not even
// when the members have evicted it. So before a write is sent to a member, its key is marked: an item of its
// own, at the member that owns the key, says that the source's value is outdated. A mark's key is a hash of
// the client's key, so no client's request ever finds it, in any state of the rings. A router asks the source
// for a key as follows:
//
//	look for the mark, ask the source, add the item, look for the mark again; if it is there now, take the item back
//
// A write that begins meanwhile, at any router, is marked before or after the second look. In the first case the item
// is taken back, in the second the write comes after the add, and finds the item. So the only trace of the race is
// that the item can be read for one round trip before it is taken back, as in a move without leases.
//
// All of this is done by goroutines with their own connections. Their number, the queues, and the time that the source
// may take are bounded; a source that fails is a miss, and is left alone for a while.
package onmiss

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/wire"
)

const (
	// askers and markers are the goroutines that ask the source, and those that only mark keys.
	askers, markers = 32, 16
	// mostAsked bounds the keys that wait for an asker, and mostWaiting all requests that wait for these.
	mostAsked, mostWaiting = 1024, 8192
	// mostValue bounds a value of the source, in bytes: each asker may have one in memory.
	mostValue = 1 << 20
	// attempts is how often a member may refuse a mark before the source is given up.
	attempts = 3
	// firstRest and lastRest are how long a server of the source that has failed is left alone.
	firstRest, lastRest = time.Second, 30 * time.Second
	// markSeconds is how long a mark lasts: the longest time that memcached reads as relative.
	markSeconds = 30 * 24 * 3600
	// DefaultTimeout bounds the time for an answer of the source.
	DefaultTimeout = 250 * time.Millisecond
	// DefaultTTL is the time to live of an item whose source can't tell it.
	DefaultTTL = time.Hour
)

// markAll is the mark of all keys.
const markAll = contract.OutdatedAll

// Config configures a Source. The zero value of a bound is its default.
type Config struct {
	// Find returns the source's ring. Find is called again until it succeeds.
	Find func(context.Context) (fence.Ring, error)
	// Dialer connects to the source.
	Dialer memcache.Dialer
	// Timeout bounds the time that the source may take for a key.
	Timeout time.Duration
	// TTL is the time to live of an item if the source is too old to tell it (before 1.6); below 0 for ever.
	TTL time.Duration

	// Members connects to members, MemberTimeout bounds the time for their answers, and MaxItem an item's value.
	Members       memcache.Dialer
	MemberTimeout time.Duration
	MaxItem       int
	// Table returns the present rings.
	Table func() *fence.Table
	// Clients bounds the calls of Prepare at the same time.
	Clients int
	Logf    func(format string, args ...any)
}

// Source is the other cache.
type Source struct {
	config Config
	ring   atomic.Pointer[fence.Ring]
	// flushed means that nothing of the source is valid any more: clients have flushed the members, or a key could not
	// be marked.
	flushed atomic.Bool
	asked   chan question
	tasks   chan task
	pulls   chan task
	flushes chan struct{}

	mu sync.Mutex
	// waiting are the requests for each key that is being asked for.
	waiting map[string][]func()
	waits   int
	resting map[string]rest

	hits, misses, failures atomic.Uint64
}

// rest says until when a server is left alone.
type rest struct {
	until time.Time
	next  time.Duration
}

// task is a key that is to be prepared for a write.
type task struct {
	question
	pull, mark bool
	done       func(error)
}

// question is a key, and when it was asked for.
type question struct {
	key   string
	asked time.Time
}

// New returns a source that does nothing before Run.
func New(c Config) *Source {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	c.Dialer.AnyServer = true
	return &Source{config: c, asked: make(chan question, mostAsked), tasks: make(chan task, c.Clients), pulls: make(chan task, c.Clients),
		flushes: make(chan struct{}, 1), waiting: map[string][]func(){}, resting: map[string]rest{}}
}

// Run serves requests until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.find(ctx) })
	all.Go(func() { s.markFlushes(ctx) })
	for range askers {
		all.Go(func() { s.newWorker().run(ctx, s.asked, s.pulls) })
	}
	for range markers {
		all.Go(func() { s.newWorker().run(ctx, nil, s.tasks) })
	}
	all.Wait()
}

// find calls Config.Find until it succeeds.
func (s *Source) find(ctx context.Context) {
	for wait, said := firstRest, ""; ctx.Err() == nil; wait = min(2*wait, lastRest) {
		ring, err := s.config.Find(ctx)
		if err == nil {
			s.ring.Store(&ring)
			return
		}
		if said != err.Error() && ctx.Err() == nil {
			said = err.Error()
			s.config.Logf("the source of what members miss can't be found: %s", contract.OneLine(err))
		}
		_ = pace.Sleep(ctx, wait)
	}
}

// Reads tells whether a request is a read that is repeated when the key was copied from the source.
func Reads(r *wire.Request) bool {
	switch r.Verb {
	case wire.Get, wire.Gets:
		return true
	case wire.MetaGet:
		class, vivifies := ringchange.ClassOf(r)
		return class == ringchange.Read && !vivifies && !r.Has('N')
	}
	return false
}

// Needs tells what is done before a request is sent to its member: the key is copied from the source, because
// the request depends on the item, and the key is marked, because the request may change the item.
func Needs(r *wire.Request) (pull, mark bool) {
	class, _ := ringchange.ClassOf(r)
	switch class {
	case ringchange.Set, ringchange.Delete:
		return false, true
	case ringchange.Create, ringchange.Upsert:
		return true, true
	case ringchange.Update: // a touch changes no value
		touches := r.Verb == wire.Gat || r.Verb == wire.Gats || r.Verb == wire.Touch || r.Verb == wire.MetaGet
		return true, !touches
	}
	return r.Verb == wire.MetaGet && r.Has('N'), false
}

// Ask copies a key from the source to its member, and calls done, which must not block. Ask returns false if
// it copies nothing: the source fails, or too many requests wait for it.
func (s *Source) Ask(key []byte, done func()) bool {
	if !s.answers(key) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits >= mostWaiting {
		return false
	}
	all, begun := s.waiting[string(key)]
	if !begun {
		select {
		case s.asked <- question{string(key), time.Now()}:
		default:
			return false
		}
	}
	s.waits++
	s.waiting[string(key)] = append(all, done)
	return true
}

// answers tells whether the source may have something for the key.
func (s *Source) answers(key []byte) bool {
	ring := s.ring.Load()
	if ring == nil || s.flushed.Load() || contract.IsMembersOwn(key) {
		return false
	}
	return !s.rests(ring.Servers[ring.Owner.Owner(key)].Address())
}

// rests tells whether a server is left alone.
func (s *Source) rests(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, failed := s.resting[address]
	return failed && time.Now().Before(r.until)
}

// Prepare calls done, which must not block, when a key was copied and marked, as Needs says. With an error
// the key was not marked, and must not be written.
func (s *Source) Prepare(key []byte, pull, mark bool, done func(error)) {
	t := task{question{string(key), time.Now()}, pull && s.answers(key), mark, done}
	to := s.tasks
	if t.pull {
		to = s.pulls
	}
	select {
	case to <- t:
	default:
		done(errors.New("too many requests wait for it"))
	}
}

// Flushed is called when a client flushes the members.
func (s *Source) Flushed() {
	s.flushed.Store(true)
	select {
	case s.flushes <- struct{}{}:
	default:
	}
}

// markFlushes marks all keys, so that the other routers learn of a flush. The flush removes marks, too, so
// all keys are marked again when the flush is over.
func (s *Source) markFlushes(ctx context.Context) {
	const flushRest = 3 * time.Second // package router repeats a flush after two
	w := s.newWorker()
	defer w.close()
	for {
		select {
		case <-s.flushes:
		case <-ctx.Done():
			return
		}
		for range 3 {
			for _, server := range s.config.Table().Servers() {
				if err := w.set(ctx, server.Address(), markAll); err != nil {
					s.config.Logf("a flush_all is not marked at member %s: %s", server.Address(), contract.OneLine(err))
				}
			}
			if pace.Sleep(ctx, flushRest) != nil {
				return
			}
		}
	}
}

// Counts are how many keys the source had and did not have, and how often it failed.
type Counts struct{ Hits, Misses, Failures uint64 }

// Counts returns the counts so far.
func (s *Source) Counts() Counts {
	return Counts{s.hits.Load(), s.misses.Load(), s.failures.Load()}
}

// failed leaves a server alone: one of the source, or a member that an asker needs.
func (s *Source) failed(address string, err error) {
	s.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resting[address]
	if time.Now().Before(r.until) {
		return // another request has failed at the same time
	}
	r.next = min(max(2*r.next, firstRest), lastRest)
	r.until = time.Now().Add(r.next)
	s.resting[address] = r
	s.config.Logf("keys that %s would be asked for are misses for %v: %s", address, r.next, contract.OneLine(err))
}

func (s *Source) succeeded(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resting, address)
}

// markOf returns the key of a key's mark.
func markOf(key string) string { return contract.OutdatedKey([]byte(key)) }

// owners returns where a key is, or may be. stable means that it is in one place.
func (s *Source) owners(key string) (all []string, stable bool) {
	t := s.config.Table()
	all = append(all, t.New.Servers[t.New.Owner.Owner([]byte(key))].Address())
	if t.State != ringchange.Stable {
		if old := t.Old.Servers[t.Old.Owner.Owner([]byte(key))].Address(); !slices.Contains(all, old) {
			all = append(all, old)
		}
	}
	return all, t.State == ringchange.Stable
}

// unmarked is why a write must not be sent.
func unmarked(err error) error {
	return fmt.Errorf("the key could not be marked as changed since the move from another cache began: %w", err)
}
