package move

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

const (
	// nowhere is the index of a leaving member: it is none of the servers.
	nowhere = -1
	// quietFor is how long clients must not have called a member before it settles.
	quietFor = 5 * time.Second
	// lookEvery is how often its counters are read, and nameEvery how often the clients are looked for.
	lookEvery = 500 * time.Millisecond
	nameEvery = 5 * time.Second
	// shortRest is the minimum time between two passes. For eagerFor, while most clients get the new list,
	// passes take at most half of the time; after that they take one part in lateShare plus one.
	shortRest = 50 * time.Millisecond
	eagerFor  = 5 * time.Second
	lateShare = 4
)

// leaving is a member that is on no ring any more, and that clients with an old list still call. It stays
// until no client does, or until its patience is over. Items that they store there meanwhile are moved, too.
type leaving struct {
	l      *runningMember
	enter  func(contract.Phase)
	report func()
	// patience is 0 if the move waits for no client; until is when it ends.
	patience time.Duration
	until    time.Time
	// taken is how many bytes its items took at first.
	taken int64

	watch link
	// settling means that settling has begun. last means that the present pass is the last one. quiet means
	// that it has settled.
	settling, last, quiet bool
	// began is when the present pass began. named is when the callers were last looked for.
	began, named time.Time
	// empty means that a pass has found nothing.
	empty atomic.Bool
	// missed counts clients' deletes that found nothing, since settling began.
	missed int64

	mu      sync.Mutex
	callers string
	calling time.Time
}

// MoveFromLeaving moves all items of a running member that is none of the Servers. It ends when a pass has
// found nothing and no client has called the member for five seconds, or when patience is over, counted from
// the first item. If patience is 0, it doesn't wait for clients.
func (e *Engine) MoveFromLeaving(ctx context.Context, source routing.Server, scratch string, patience time.Duration) contract.Receipt {
	l := e.runningMember(source, nowhere, scratch)
	l.leaving = &leaving{l: l, enter: e.beginPhase, report: e.report, patience: patience, watch: l.link(source)}
	defer l.leaving.watch.close()
	e.Source = l
	return e.Run(ctx)
}

func (l *runningMember) settled() bool { return l.leaving != nil && l.leaving.quiet }

// anotherPass is runningMember.anotherPass for a leaving member.
func (v *leaving) anotherPass(ctx context.Context, passes int, last found) (more bool, err error) {
	took := time.Since(v.began)
	defer func() { v.began = time.Now() }()
	if last == nothing && !v.empty.Swap(true) {
		v.report() // routers wait for this
	}
	switch {
	case v.last && passes > 0: // if a stream broke in the last pass, a listing is the last one
		return false, nil
	case passes == 0 && v.until.IsZero():
		v.until = time.Now().Add(v.patience)
		return true, nil
	case passes == 0, !v.settling && passes < atOnce && last == some:
		return true, nil
	}
	v.l.closeLinks() // memcached may close idle connections
	rest := v.l.pause(took, v.since())
	if v.patience > 0 {
		return v.settle(ctx, last, rest)
	}
	if last == nothing || passes >= listings {
		return false, nil
	}
	return true, pace.Sleep(ctx, rest)
}

// since returns how long ago the move began.
func (v *leaving) since() time.Duration { return v.patience - time.Until(v.until) }

// settle waits, for at least rest, until there is a reason for another pass: the last one has found items, or
// clients have stored some since. It ends when no client calls any more, or, when patience is over, with a
// last pass.
func (v *leaving) settle(ctx context.Context, last found, rest time.Duration) (more bool, err error) {
	if !v.settling {
		v.settling = true
		v.enter(contract.PhaseSettling)
	}
	linked := v.l.linked
	first, err := v.look(ctx)
	if err != nil {
		return false, err
	}
	heard, before := calls{first, first}, first
	for {
		wait := min(lookEvery, rest, time.Until(v.until), time.Until(heard.quietAt()))
		if err := pace.Sleep(ctx, max(0, wait)); err != nil {
			return false, err
		}
		now, err := v.look(ctx)
		if err != nil {
			return false, err
		}
		v.missed += max(0, now.missed-before.missed)
		before = now
		quiet := heard.look(now)
		first = heard.first
		// This looks at the time before the next pass: while clients store items, each rest is over at the
		// first look, and in such a short time no client may have called.
		called := now.commands != first.commands
		if now.at.Sub(v.named) >= nameEvery && (called || now.at.Sub(first.at) >= lookEvery) {
			v.named = now.at
			if err := v.name(ctx, first, now); err != nil {
				return false, err
			}
		}
		switch stored := last == some || now.linked != linked; {
		case !now.at.Before(v.until):
			v.last = true
			return true, nil
		case stored && now.at.Sub(first.at) >= rest:
			return true, nil
		case !stored && quiet:
			v.quiet = true
			return false, nil
		}
	}
}

// counters are a member's counters at one time.
type counters struct {
	at time.Time
	// commands counts clients' commands, missed their deletes that found nothing.
	commands, missed int64
	// linked is how many items were stored.
	linked string
}

// calls is what the counters show of clients' calls.
type calls struct {
	// first is the first look; still is the look that saw the last call.
	first, still counters
}

// look tells whether no client has called for quietFor.
func (c *calls) look(now counters) (quiet bool) {
	if now.commands < c.first.commands { // the counters were reset
		c.first = now
	}
	if now.commands != c.still.commands {
		c.still = now
	}
	return !now.at.Before(c.quietAt())
}

// quietAt returns when no client has called for quietFor, if none calls any more.
func (c *calls) quietAt() time.Time { return c.still.at.Add(quietFor) }

// clientCommands are the counters of commands with which clients use caches. They leave out the commands of
// the supervisor and of monitoring: "me", "version", "mn" and "stats".
var clientCommands = []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_flush", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses"}

// look reads the counters. Between two looks the mover itself sends no command that counts.
func (v *leaving) look(ctx context.Context) (now counters, err error) {
	restarted := false
	err = v.l.ask(ctx, &v.watch, func(c *memcache.Conn) error {
		stats, err := c.Stats("")
		if err != nil {
			return err
		}
		now = counters{at: time.Now(), linked: stats["total_items"]}
		for _, name := range clientCommands {
			n, err := strconv.ParseInt(stats[name], 10, 64)
			if err != nil {
				return fmt.Errorf("%w to stats: %s=%q", memcache.ErrProtocol, name, stats[name])
			}
			if now.commands += n; name == "delete_misses" {
				now.missed = n
			}
		}
		restarted, err = v.l.isAnother(stats)
		return err
	})
	if restarted && err == nil {
		err = &sourceError{v.l.member.String(), errRestarted}
	}
	return now, err
}

// name records which clients still call.
func (v *leaving) name(ctx context.Context, before, now counters) error {
	callers := ""
	if calls := now.commands - before.commands; calls != 0 {
		var peers *memcache.Peers
		if err := v.l.ask(ctx, &v.watch, func(c *memcache.Conn) (err error) {
			peers, err = c.Peers(nameEvery)
			return err
		}); err != nil {
			return err
		}
		rate := math.Ceil(float64(calls) / now.at.Sub(before.at).Seconds())
		callers = fmt.Sprintf("clients still call it: %.0f commands a second%s", rate, peers)
		if v.missed > 0 { // the item may have been moved
			callers = fmt.Sprintf("clients still call it: %.0f commands a second; %d of their deletes found nothing%s", rate, v.missed, peers)
		}
		callers = callers[:min(len(callers), contract.MaxCallers)]
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.callers == "" {
		v.calling = now.at
	}
	v.callers = callers
	return nil
}

// waitsFor returns which clients still call, and how long the move has waited for them.
func (v *leaving) waitsFor() (callers string, waiting time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.callers == "" {
		return "", 0
	}
	return v.callers, time.Since(v.calling)
}

// isServerError means that the source is also a server.
type isServerError struct{ source, server string }

func (e *isServerError) Error() string {
	return fmt.Sprintf("the source %s is the server %s under another name: items moved there would be lost", e.source, e.server)
}

// Failure returns the reason and the exit code: no retry helps.
func (e *isServerError) Failure() (reason string, exitCode int) {
	return reasonSourceIsServer, contract.ExitUsage
}

// checkLeaving waits until a leaving member answers, and makes sure that it is none of the servers under another
// name: each of its items would be found there, and deleted.
func (e *Engine) checkLeaving(ctx context.Context, l *runningMember) error {
	var limits memcache.Limits
	err := l.ask(ctx, &l.leaving.watch, func(c *memcache.Conn) (err error) {
		limits, err = c.Limits()
		return err
	})
	if err == nil && !limits.CAS {
		err = &noCASError{l.member.String()}
	}
	l.leaving.taken = limits.Taken
	if err != nil {
		return err
	}
	return e.isNoServer(ctx, l)
}

// isNoServer returns an error if the member's process is a server's. It compares the counters of both.
// Counters only grow, so if both are one process, the server's counters are between those of the member
// before and after.
func (e *Engine) isNoServer(ctx context.Context, l *runningMember) error {
	before, err := l.usage(ctx, &l.leaving.watch)
	if err != nil {
		return err
	}
	of := make([]memcache.Usage, len(e.writers))
	if err := e.each(func(i int, _ *memcache.Writer) (err error) {
		k := l.link(e.Servers[i])
		defer k.close()
		of[i], err = l.usage(ctx, &k)
		return err
	}); err != nil {
		return err
	}
	after, err := l.usage(ctx, &l.leaving.watch)
	reset := !after.After(before)
	for i, s := range e.Servers {
		lost := e.Lost != nil && e.Lost[i]
		if err == nil && !lost && (reset || of[i].After(before) && after.After(of[i])) {
			err = l.compareAgain(ctx, s)
		}
	}
	return err
}

// compareAgain looks three times more at a server whose counters fit. It returns an error unless one look shows
// that the processes differ.
func (l *runningMember) compareAgain(ctx context.Context, server routing.Server) error {
	k := l.link(server)
	defer k.close()
	const looks = 3
	for range looks {
		before, err := l.usage(ctx, &l.leaving.watch)
		between, err2 := l.usage(ctx, &k)
		after, err3 := l.usage(ctx, &l.leaving.watch)
		switch err := errors.Join(err, err2, err3); {
		case err != nil:
			return err
		case after.After(before) && (!between.After(before) || !after.After(between)):
			return nil
		}
	}
	return &isServerError{l.member.String(), server.String()}
}

func (l *runningMember) usage(ctx context.Context, k *link) (u memcache.Usage, err error) {
	err = l.ask(ctx, k, func(c *memcache.Conn) (err error) {
		u, err = c.Usage()
		return err
	})
	return u, err
}
