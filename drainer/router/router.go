// Package router is a stateless router for memcached's text and binary protocols: applications have one
// address, and the router asks each key's owner among the members.
//
// A loop for each CPU serves a part of the clients with epoll. A loop has one connection to each member,
// which all of its clients share, and carries out a request from the client's bytes to the answer's without
// another goroutine. Goroutines do what may block: they connect, resolve names, use TLS, and translate the
// binary protocol.
package router

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/router/onmiss"
)

// Config configures a router. The zero value of a bound is its default.
type Config struct {
	// Table is the first table; see Apply for later ones.
	Table *Table
	// Dialer opens connections to members.
	Dialer memcache.Dialer
	// TLS returns the configuration for a client's new connection; nil for plain text.
	TLS func() (*tls.Config, error)
	// Logins returns the accepted logins; nil accepts clients without a login. Logins is called every second.
	Logins func() ([]contract.Login, error)
	// Loops is the number of threads that serve clients.
	Loops int
	// MaxConnections bounds the clients. There are fewer clients with TLS or the binary protocol if the
	// goroutines that carry their connections would take more than half of the memory of all loops.
	MaxConnections int
	// MaxFiles is how many files the process may have open; 0 any number. Connections of clients are fewer if they
	// would leave too few to reach members.
	MaxFiles int64
	// MaxItem bounds a data block, in bytes, with its line end.
	MaxItem int
	// MaxMemory bounds each loop's memory for clients' requests and answers, in bytes. Small values may
	// exceed it by a quarter, and one value may exceed it alone.
	MaxMemory int
	// MemberTimeout is how long a member may leave a request without an answer.
	MemberTimeout time.Duration
	// ConnectTimeout bounds the time to connect to a member, with TLS and the login.
	ConnectTimeout time.Duration
	// IdleTimeout closes the connection of a client that sends and reads nothing; 0 never.
	IdleTimeout time.Duration
	// RequestTimeout is how long a request of more than a few KiB may take to arrive, plus a second for each
	// slowest bytes. While memory is short, it also applies to small requests, and to clients that read none
	// of their answers.
	RequestTimeout time.Duration
	// Linger is how long a router that was told to end goes on, until all clients have learned that it is not ready.
	Linger time.Duration
	// Spread is over how long it then closes connections, one after the other (close.go); 0 at once. LastWords is how long
	// a client may then still send before its connection is gone.
	Spread, LastWords time.Duration
	// DrainTimeout bounds how long it then waits for answers.
	DrainTimeout time.Duration
	// ReadErrors means that a read of a key gets an error, which ends a classic read, if its member can't be
	// asked or answers with an error. Otherwise the key is a miss.
	ReadErrors bool
	// Slow is the duration from which requests are logged. Requests with an error of a member are logged,
	// too. Each loop logs at most one a second; 0 logs none.
	Slow time.Duration
	// Fence means that tables are offered, and the router looks at the members for how far other routers are.
	Fence bool
	// LeftBehind is how long there may be a later table than the router's before the router refuses keys that
	// may have moved, and after twice that time all keys.
	LeftBehind time.Duration
	// LookPeriod is the approximate time between two looks at a member.
	LookPeriod time.Duration
	// OnMiss is the cache that is asked for missed keys; nil for none. The router sets the fields of OnMiss
	// that it knows itself.
	OnMiss *onmiss.Config
	// Logf logs a line for people.
	Logf func(format string, args ...any)
}

// Defaults of Config.
const (
	DefaultMaxConnections = 10_000
	DefaultMaxItem        = 1 << 20 // memcached's own
	DefaultMaxMemory      = 256 << 20
	DefaultMemberTimeout  = 2 * time.Second
	DefaultConnectTimeout = 2 * time.Second
	DefaultDrainTimeout   = contract.RouterDrain
	DefaultRequestTimeout = 30 * time.Second
	DefaultLastWords      = time.Second
)

func (c *Config) complete() {
	c.Loops = max(c.Loops, 1)
	set(&c.MaxConnections, DefaultMaxConnections)
	set(&c.MaxItem, DefaultMaxItem)
	set(&c.MaxMemory, DefaultMaxMemory)
	set(&c.MemberTimeout, DefaultMemberTimeout)
	set(&c.ConnectTimeout, DefaultConnectTimeout)
	set(&c.DrainTimeout, DefaultDrainTimeout)
	set(&c.RequestTimeout, DefaultRequestTimeout)
	set(&c.LastWords, DefaultLastWords)
	set(&c.LeftBehind, fence.DefaultLeftBehind)
	set(&c.LookPeriod, fence.DefaultLookPeriod)
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
}

func set[T int | time.Duration](value *T, usual T) {
	if *value <= 0 {
		*value = usual
	}
}

// Router serves clients.
type Router struct {
	config  Config
	began   time.Time
	loops   []*loop
	clients eventloop.Clients
	members eventloop.Members
	logins  logins
	// version is that of a member.
	version atomic.Pointer[string]
	// membersStats are for clients that ask for statistics, by kind.
	membersStats map[string]*membersStats
	ending       atomic.Bool
	files        files
	table        atomic.Pointer[Table]
	fence        *fence.Fence
	source       *onmiss.Source // nil for none
	// serving ends when the last client has gone, and the goroutines end with it.
	serving    context.Context
	stop       context.CancelFunc
	goroutines sync.WaitGroup
}

// New returns a router that serves no client yet.
func New(config Config) (*Router, error) {
	config.complete()
	r := &Router{config: config, began: time.Now(), membersStats: newMembersStats()}
	c := &r.config
	r.clients = eventloop.Clients{Most: c.MaxConnections, MostBytes: int64(c.MaxMemory) * int64(config.Loops) / 2, TLS: c.TLS, Give: r.give, LastWords: 2 * config.LastWords, Logf: c.Logf}
	r.members = eventloop.Members{Dialer: c.Dialer, Timeout: c.ConnectTimeout, Logf: c.Logf}
	r.serving, r.stop = context.WithCancel(context.Background())
	for range config.Loops {
		l, err := newLoop(r)
		if err != nil {
			for _, l := range r.loops {
				l.poller.End()
			}
			return nil, fmt.Errorf("epoll: %w", err)
		}
		r.loops = append(r.loops, l)
	}
	if err := r.Apply(config.Table); err != nil {
		return nil, err
	}
	if config.OnMiss != nil {
		o := *config.OnMiss
		o.Members, o.MemberTimeout, o.MaxItem, o.Clients, o.Table, o.Logf = c.Dialer, c.MemberTimeout, c.MaxItem, c.MaxConnections, r.table.Load, c.Logf
		r.source = onmiss.New(o)
	}
	r.logins.config = &r.config
	r.logins.read()
	if config.Fence {
		r.fence = fence.New(r.serving, fence.Config{Dialer: c.Dialer, LookTimeout: c.ConnectTimeout,
			LeftBehind: c.LeftBehind, LookPeriod: c.LookPeriod, Logf: c.Logf}, c.Table)
	}
	return r, nil
}

// give gives a client to a loop, in turn.
func (r *Router) give(n int64, fd int, carried bool) bool {
	l := r.loops[int(n)%len(r.loops)]
	return l.poller.Post(func() { l.accept(fd, carried) })
}

// Serve serves the clients of a listener until ctx ends, and then until they have the answers to their
// requests (close.go). Serve closes the listener.
func (r *Router) Serve(ctx context.Context, listener net.Listener) error {
	var loops sync.WaitGroup
	for _, l := range r.loops {
		loops.Go(l.run)
	}
	if r.fence != nil {
		r.fence.Begin(ctx)
		for _, l := range r.loops {
			l.poller.Post(l.judge)
		}
	}
	r.goroutines.Go(func() { r.logins.keep(r.serving) })
	if r.source != nil {
		r.goroutines.Go(func() { r.source.Run(r.serving) })
	}
	failed := make(chan error, 1)
	r.goroutines.Go(func() { failed <- r.clients.Serve(r.serving, listener, r.ending.Load) })
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		r.ending.Store(true)
		_ = pace.Sleep(r.serving, r.config.Linger)
	}
	r.drain(listener)
	r.stop()
	for _, l := range r.loops {
		l.poller.Post(l.poller.Finish)
	}
	loops.Wait()
	r.goroutines.Wait()
	r.fence.Wait()
	return err
}

// drain closes the connections, and waits until no client is connected. Clients are accepted until it is the turn of the
// last connection.
func (r *Router) drain(listener net.Listener) {
	for k, l := range r.loops {
		l.poller.Post(func() { l.end(r.config.Spread, k, len(r.loops)) })
	}
	r.deserted(r.config.Spread)
	_ = listener.Close()
	if !r.deserted(r.config.DrainTimeout) {
		r.config.Logf("%d connections are closed before their requests were answered: the time for that (--drain-timeout) is over", r.clients.Connected())
	}
}

// deserted waits until no client is connected, for so long at most, and tells whether none is.
func (r *Router) deserted(within time.Duration) bool {
	for end := time.Now().Add(within); r.clients.Connected() > 0; {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(tick / 10)
	}
	return true
}
