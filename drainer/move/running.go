package move

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strconv"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/item"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

const (
	// listings is the number of listings after which the move fails because clients still write to the
	// member. The pauses between them double; together they take about the minute in which the last client
	// learns of a new list.
	listings  = 9
	firstRest = time.Second
	// longestList bounds the list of keys, in bytes: about 20 million keys. The rest is listed when these are
	// moved, at most mostCuts times.
	longestList = 1 << 30
	mostCuts    = 1000
)

// errStillStored: clients still store items where they should no longer look.
var errStillStored = errors.New("clients still store items here that another server owns: they use another list of servers, or another client library, than this move (--server and --client; spec.routing of the cluster)")

// errRestarted: a member's replay after a crash may add items after they were listed.
var errRestarted = errors.New("its memcached restarted during the move, so the move has to begin again")

// runningMember is a Source of the items of a running member that others own. A yielded item is deleted at
// the member as soon as its owner has answered, unless it has changed there meanwhile. So every key is always
// in at least one place, and the next run finds a key that a killed run left in both.
type runningMember struct {
	member  routing.Server
	self    int // the member's index among servers, nowhere if it is leaving
	servers []routing.Server
	owner   routing.Owner
	// lost marks the lost servers, nil for none: the items that they own are deleted at the member.
	lost []bool
	// scratch is the directory of the list of keys, and longest bounds the list, in bytes.
	scratch string
	longest int64
	dialer  memcache.Dialer
	timeout time.Duration
	limit   pace.Limit
	// rest is the pause before the third listing.
	rest    time.Duration
	waiting func(name, why string)
	// takes tells whether a server can store such client flags; nil if all can.
	takes func(server int, flags uint64) bool
	// settle waits until every yielded item has an outcome, and returns how many of them the owners refused.
	settle func() (rejected int64, err error)

	// leaving is nil if the member stays, starting is nil if the move begins at once.
	leaving  *leaving
	staying  staying
	starting *starting
	// patience is how long the move waits for clients, 0 if it waits for none; until is when it ends.
	patience time.Duration
	until    time.Time
	enter    func(contract.Phase)
	// watch reads the member's counters. passBegan is when the present pass began.
	watch     link
	passBegan time.Time
	// settles means that a member that stays waits for clients.
	settles bool
	followers

	version string
	started int64        // when the member started, in Unix seconds; 0 unknown
	linked  string       // how many items it had stored, before a pass
	behind  atomic.Int64 // seconds by which the member's clock is behind ours
	passes
	done   func() int64
	reader link // reads from the member
	once   once
	earlier
	streaming
	passing
	// leased is nil if no leases are taken.
	leased *leased
}

// link is a connection to one server that is opened when it is needed.
type link struct {
	server routing.Server
	dialer memcache.Dialer
	conn   *memcache.Conn
	opened time.Time
	stop   func() bool
}

func (l *runningMember) link(s routing.Server) link { return link{server: s, dialer: l.dialer} }

// get returns the connection; the next requests may take timeout.
func (k *link) get(ctx context.Context, timeout time.Duration) (*memcache.Conn, error) {
	if k.conn == nil {
		dialCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := k.dialer.Dial(dialCtx, k.server.Address())
		if err != nil {
			return nil, err
		}
		k.conn, k.opened = conn, time.Now()
		k.stop = context.AfterFunc(ctx, func() { conn.Close() })
	}
	return k.conn, k.conn.SetDeadline(time.Now().Add(timeout))
}

func (k *link) close() {
	if k.conn != nil {
		k.stop()
		k.conn.Close()
		k.conn = nil
	}
}

// ask repeats do on a link until it succeeds. If the connection breaks, the requests of do may have been
// carried out or not.
func (l *runningMember) ask(ctx context.Context, k *link, do func(*memcache.Conn) error) error {
	return k.ask(ctx, l.timeout, l.waiting, k.server == l.member, do)
}

func (k *link) ask(ctx context.Context, patience time.Duration, waits func(name, why string), source bool, do func(*memcache.Conn) error) error {
	err := memcache.Insist(ctx, patience, func(why string) { waits(k.server.String(), why) }, func(timeout time.Duration) error {
		conn, err := k.get(ctx, timeout)
		if err == nil {
			err = do(conn)
		}
		if err != nil {
			k.close()
		}
		return err
	})
	switch {
	case err == nil:
		return nil
	case source:
		return &sourceError{k.server.String(), err}
	}
	return &survivorError{k.server.String(), err}
}

// sourceError is an error about the member whose items are moved.
type sourceError struct {
	name string
	err  error
}

func (e *sourceError) Error() string { return fmt.Sprintf("source %s: %v", e.name, e.err) }
func (e *sourceError) Unwrap() error { return e.err }

// Expected returns the number of items that have been listed.
func (l *runningMember) Expected() int64 { return l.expected.Load() }

// Size is unknown: there is no file, and clients go on adding items. A listing that breaks off is an error.
func (l *runningMember) Size() int64     { return 0 }
func (l *runningMember) Used() int64     { return 0 }
func (l *runningMember) Done() int64     { return 0 }
func (l *runningMember) Lacking() error  { return nil }
func (l *runningMember) Clean() bool     { return true } // memcached itself is asked
func (l *runningMember) Version() string { return l.version }

// Items yields every item that another server owns, until a listing has none.
func (l *runningMember) Items(ctx context.Context) iter.Seq2[*item.Item, error] {
	return func(yield func(*item.Item, error) bool) {
		enough, cuts := false, 0
		if l.Export != nil {
			done, err := l.streamed(ctx, func(it *item.Item) bool {
				enough = !yield(it, nil)
				return !enough
			})
			if err != nil && !enough {
				yield(nil, err)
			}
			if l.allStreamed = done; done || err != nil {
				return
			}
		}
		if _, err := l.start(ctx, forever); err != nil {
			yield(nil, err)
			return
		}
		found, cut := some, false
		for n := 0; ; n++ {
			more, err := true, error(nil)
			if cut && cuts < mostCuts { // the rest of a long list doesn't mean that clients still store items here
				n, cuts = n-1, cuts+1
			} else {
				more, err = l.anotherPass(ctx, n, found)
			}
			if err == nil && more {
				found, cut, err = l.round(ctx, func(it *item.Item) bool {
					enough = !yield(it, nil)
					return !enough
				})
			}
			if err != nil && !enough {
				yield(nil, err)
			}
			if err != nil || enough || !more {
				return
			}
		}
	}
}

// found is the result of a pass.
type found uint8

const (
	some found = iota
	nothing
	// refused: an owner refused an item, which stays here, and would refuse the item again.
	refused
)

// atOnce is how many passes follow each other without a rest. Usually the second finds the few items that
// were in use during the first, and the third finds nothing.
const atOnce = 3

// anotherPass tells whether another pass follows that many passes; last is the result of the last of them.
// anotherPass waits until that pass is due.
func (l *runningMember) anotherPass(ctx context.Context, passes int, last found) (more bool, err error) {
	took := time.Since(l.passBegan)
	if l.leaving == nil && passes > 0 && last == some {
		l.clients.unseen()
	}
	defer func() {
		l.demand.pause()
		if more && passes > 0 {
			l.clients.passes()
		}
		if more && l.settles {
			l.settles = false
			l.enter(contract.PhaseAdding)
		}
		l.passBegan = time.Now()
	}()
	l.beginPatience(time.Now())
	switch {
	case last == refused:
		return false, nil
	case l.leaving != nil:
		return l.leaving.anotherPass(ctx, passes, took, last)
	case l.patience > 0:
		return l.staying.anotherPass(ctx, l, passes, took, last)
	case last == nothing:
		return false, nil
	case passes == listings:
		return false, errStillStored
	case passes < atOnce:
		return true, nil
	}
	return true, pace.Sleep(ctx, l.rest<<(passes-atOnce))
}

// beginPatience is called when clients are told of the list; a listing that continues where a stream broke has no
// patience of its own.
func (l *runningMember) beginPatience(now time.Time) {
	if l.until.IsZero() {
		l.until = now.Add(l.patience)
	}
}

// round moves the items that a listing finds, and tells whether the listing was cut.
func (l *runningMember) round(ctx context.Context, yield func(*item.Item) bool) (last found, cut bool, err error) {
	list, err := l.list(ctx)
	if err != nil {
		return some, false, err
	}
	defer list.Close()
	if list.Len() == 0 {
		return nothing, false, nil
	}
	l.expect(list.Len())
	if l.leased != nil {
		last, err := l.leased.listed(ctx, list)
		return last, list.Cut() && last == some, err
	}
	l.connect(ctx)
	defer l.closeLinks()
	l.once.Begin(list.Len())
	rejected, err := l.pass(ctx, l.asked(ctx, list.All()), yield)
	if err != nil || rejected {
		return refused, false, err
	}
	return some, list.Cut(), nil
}

// asked yields the member's items of a list.
func (l *runningMember) asked(ctx context.Context, list iter.Seq2[*Entry, error]) iter.Seq2[*item.Item, error] {
	f := fetcher{Limit: l.limit, Behind: l.behind.Load,
		Ask: func(ctx context.Context, do func(*memcache.Conn) error) error { return l.ask(ctx, &l.reader, do) }}
	items := f.Items(ctx, func(yield func(*Entry, error) bool) {
		for e, err := range list {
			if err == nil && l.once.Had(e.Key) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	})
	return func(yield func(*item.Item, error) bool) {
		for it, err := range items {
			if err == nil {
				it.ExpireAt = l.ours(it.ExpireAt)
				if it.CAS != 0 && l.isLost(it.Key) {
					it.State = item.Invalidated
				}
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// MoveFrom moves the items of a running member, Servers[self], that others own, until no pass has found any
// for five seconds. MoveFrom fails if clients still store some when patience is over, counted from the first
// item. If patience is 0, MoveFrom ends with the first pass that has found nothing. The list of the member's
// keys is in the directory scratch.
func (e *Engine) MoveFrom(ctx context.Context, self int, scratch string, patience time.Duration) contract.Receipt {
	l := e.runningMember(e.Servers[self], self, scratch)
	l.patience = patience
	e.Source = l
	return e.Run(ctx)
}

func (e *Engine) runningMember(member routing.Server, self int, scratch string) *runningMember {
	e.waits.Sources = []string{member.String()}
	e.keepPlaces()
	l := &runningMember{
		member: member, self: self, servers: e.Servers, owner: e.Owner, lost: e.Lost,
		dialer: e.Dialer, scratch: scratch, longest: longestList, timeout: e.UnreachableTimeout, limit: e.Limit, rest: firstRest,
		waiting: e.waits.Set,
		takes:   func(i int, flags uint64) bool { return e.writers[i].Takes(flags) },
		done:    e.done, settle: e.settle, enter: e.beginPhase, watch: link{server: member, dialer: e.Dialer}, earlier: earlier{seed: maphash.MakeSeed()},
	}
	l.demand.l, l.clients.need = l, e.need
	if e.Begin != nil {
		l.starting = &starting{Begin: *e.Begin, e: e}
	}
	if e.Leases {
		l.lease(e)
	}
	l.streaming = streaming{Export: e.Export, oldestFirst: func() bool { return e.oldestFirst(l) }, log: e.Log}
	l.soon = e.expiresSoon
	return l
}

// list lists the items that others own.
func (l *runningMember) list(ctx context.Context) (list *List, err error) {
	k := l.link(l.member)
	defer k.close()
	restarted := false
	var file *listFileError
	err = l.ask(ctx, &k, func(c *memcache.Conn) (err error) {
		if restarted, err = l.restarted(c); restarted || err != nil {
			return err
		}
		if l.leased != nil {
			l.leased.noTextForm = 0
		}
		list, err = ListItems(ctx, func(ctx context.Context) (*memcache.Conn, error) {
			return l.dialer.Dial(ctx, l.member.Address())
		}, l.scratch, l.longest, func(e *Entry) bool {
			return l.moves(e.Key) && (l.leased == nil || !l.leased.leavesOut(e.Key))
		})
		if errors.As(err, &file) {
			return nil // the member has answered
		}
		return err
	})
	if file != nil && err == nil {
		return nil, file
	}
	if restarted && err == nil {
		return nil, &sourceError{l.member.String(), errRestarted}
	}
	return list, err
}

// restarted tells whether the member is another process than before.
func (l *runningMember) restarted(c *memcache.Conn) (bool, error) {
	stats, err := c.Stats("")
	if err != nil {
		return false, err
	}
	l.linked = stats["total_items"]
	return l.isAnother(stats)
}

// isAnother tells by a process's statistics whether it is another process than before.
func (l *runningMember) isAnother(stats map[string]string) (bool, error) {
	now, began, err := times(stats)
	if err != nil {
		return false, err
	}
	another := l.isLater(began)
	l.version, l.started = stats["version"], began
	l.behind.Store(time.Now().Unix() - now)
	return another, nil
}

// times returns two times from a process's statistics, in Unix seconds of its own clock: now, and when it
// began.
func times(stats map[string]string) (now, began int64, err error) {
	now, err = strconv.ParseInt(stats["time"], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("%w to stats: time=%q", memcache.ErrProtocol, stats["time"])
	}
	uptime, err := item.Uptime(stats)
	if err != nil {
		return 0, 0, fmt.Errorf("%w to stats: uptime=%q", memcache.ErrProtocol, stats["uptime"])
	}
	return now, now - uptime, nil
}

// isLater tells whether a process that began then is another one than before.
func (l *runningMember) isLater(began int64) bool {
	const exact = 1 // in seconds, for each of the two
	return l.started != 0 && began > l.started+exact
}

// stillRuns returns an error if the member is another process than at the beginning of the pass.
func (l *runningMember) stillRuns(ctx context.Context, k *link) error {
	another := false
	err := l.ask(ctx, k, func(c *memcache.Conn) error {
		stats, err := c.Stats("")
		if err != nil {
			return err
		}
		_, began, err := times(stats)
		another = l.isLater(began)
		return err
	})
	if err == nil && another {
		return &sourceError{l.member.String(), errRestarted}
	}
	return err
}

// now returns the time of the member's own clock, by which its items expire. That clock loses up to a second
// in each warm restart.
func (l *runningMember) now() int64 { return time.Now().Unix() - l.behind.Load() }

// ours returns the time by our clock at which an item expires at the member; 0 is never.
func (l *runningMember) ours(at int64) int64 {
	if at == 0 {
		return 0
	}
	return at - item.Ahead(-l.behind.Load(), 0)
}

// moves tells whether the key's item moves. The member's own items, which supervisors and routers ask for, don't.
func (l *runningMember) moves(key []byte) bool {
	return l.owner.Owner(key) != l.self && !contract.IsMembersOwn(key)
}

// isLost tells whether the key's owner is lost.
func (l *runningMember) isLost(key []byte) bool {
	return l.lost != nil && l.lost[l.owner.Owner(key)]
}
