package move

import (
	"context"
	"errors"
	"fmt"
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
	// shortRest is the minimum time between two passes. For eagerFor, while most clients get the new list,
	// passes take at most half of the time; after that they take one part in lateShare plus one.
	shortRest = 50 * time.Millisecond
	eagerFor  = 5 * time.Second
	lateShare = 4
)

// leaving is a member that is on no ring any more, and that clients with an old list still call. The member
// stays until no client does, or until its patience is over. Items that clients store there meanwhile are
// moved, too.
type leaving struct {
	l      *runningMember
	report func()
	// taken is how many bytes the member's items took at first.
	taken int64

	// settling means that settling has begun. last means that the present pass is the last one. quiet means
	// that it has settled.
	settling, last, quiet bool
	// empty means that a pass has found nothing.
	empty atomic.Bool
}

// MoveFromLeaving moves all items of a running member that is none of the Servers. The move ends when a pass
// has found nothing and no client has called the member for five seconds, or when patience is over, counted
// from the first item. If patience is 0, the move doesn't wait for clients.
func (e *Engine) MoveFromLeaving(ctx context.Context, source routing.Server, scratch string, patience time.Duration) contract.Receipt {
	l := e.runningMember(source, nowhere, scratch)
	l.leaving, l.patience = &leaving{l: l, report: e.report}, patience
	e.Source = l
	return e.Run(ctx)
}

func (l *runningMember) settled() bool { return l.leaving != nil && l.leaving.quiet }

// anotherPass is runningMember.anotherPass for a leaving member.
func (v *leaving) anotherPass(ctx context.Context, passes int, took time.Duration, last found) (more bool, err error) {
	if last == nothing && !v.empty.Swap(true) {
		v.report() // routers wait for this
	}
	_, followed := v.l.clients.followed()
	switch {
	case v.last && passes > 0: // if a stream broke in the last pass, a listing is the last one
		return false, nil
	case passes == 0, !v.settling && passes < atOnce && last == some && followed:
		return true, nil
	}
	v.l.closeLinks() // memcached may close idle connections
	rest := v.l.pause(took)
	if v.l.patience > 0 {
		return v.settle(ctx, last, rest)
	}
	if last == nothing || passes >= listings {
		return false, nil
	}
	return true, pace.Sleep(ctx, rest)
}

// settle waits, for at least rest, until there is a reason for another pass, and enough clients have followed: the
// last pass has found items, or clients have stored some since. The settling ends when no client calls any more,
// or, when patience is over, with a last pass.
func (v *leaving) settle(ctx context.Context, last found, rest time.Duration) (more bool, err error) {
	if !v.settling {
		v.settling = true
		v.l.enter(contract.PhaseSettling)
	}
	linked := v.l.linked
	if err := v.l.resume(ctx); err != nil {
		return false, err
	}
	for began := v.l.demand.now.at; ; {
		if err := pace.Sleep(ctx, max(0, min(lookEvery, rest, time.Until(v.l.until)))); err != nil {
			return false, err
		}
		if _, err := v.l.observe(ctx); err != nil {
			return false, err
		}
		now := &v.l.demand.now
		_, followed := v.l.clients.followed()
		switch stored := last == some || now.linked != linked; {
		case !now.at.Before(v.l.until):
			v.last = true
			return true, nil
		case stored && followed && now.at.Sub(began) >= rest:
			return true, nil
		case !stored && v.l.clients.silent():
			v.quiet = true
			return false, nil
		}
	}
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
	err := l.ask(ctx, &l.watch, func(c *memcache.Conn) (err error) {
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

// isNoServer returns an error if the member's process is a server's. The counters of both are compared. Counters
// only grow, so if both are one process, the server's counters are between those of the member before and after.
func (e *Engine) isNoServer(ctx context.Context, l *runningMember) error {
	before, err := l.usage(ctx, &l.watch)
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
	after, err := l.usage(ctx, &l.watch)
	reset := !after.After(before)
	for i, s := range e.Servers {
		lost := e.Lost != nil && e.Lost[i]
		if err == nil && !lost && (reset || of[i].After(before) && after.After(of[i])) {
			err = l.compareAgain(ctx, s)
		}
	}
	return err
}

// compareAgain looks three times more at a server whose counters fit. compareAgain returns an error unless one look
// shows that the processes differ.
func (l *runningMember) compareAgain(ctx context.Context, server routing.Server) error {
	k := l.link(server)
	defer k.close()
	const looks = 3
	for range looks {
		before, err := l.usage(ctx, &l.watch)
		between, err2 := l.usage(ctx, &k)
		after, err3 := l.usage(ctx, &l.watch)
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
