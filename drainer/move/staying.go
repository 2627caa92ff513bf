package move

import (
	"context"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/pace"
)

// staying is a member that stays. The list has just changed, and clients that have not got it yet still store
// items here that others own now. So the move ends only when a pass that began after their last request has
// found nothing, or when patience is over. If their requests are not known, the move ends when no pass has
// found anything for quietFor.
type staying struct {
	// began is the beginning of the present pass, and found the end of the last pass that found items.
	began, found time.Time
	// silent means that no client called any more when the present pass began. late counts the passes after the
	// end of patience.
	silent bool
	late   int
}

// anotherPass is runningMember.anotherPass for a member that stays.
func (s *staying) anotherPass(ctx context.Context, l *runningMember, passes int, took time.Duration, last found) (more bool, err error) {
	now := time.Now()
	defer func() { s.began = time.Now() }()
	if passes == 0 {
		s.found = now
		return true, nil
	}
	if last == some {
		s.found = now
	}
	quiet := s.found.Add(quietFor)
	_, followed := l.clients.followed()
	switch {
	case last == some && passes < atOnce && followed:
		return true, nil
	case l.clients.judged():
		return s.settle(ctx, l, l.pause(took), last)
	case last == nothing && !s.began.Before(quiet):
		return false, nil
	case !now.Before(l.until):
		return s.lastPasses(last)
	}
	l.closeLinks() // memcached may close idle connections
	return true, pace.Sleep(ctx, l.pause(took))
}

// lastPasses tells whether another pass follows when patience is over: a few, because clients may have stored items
// until now.
func (s *staying) lastPasses(last found) (more bool, err error) {
	switch {
	case last == nothing && s.late > 0:
		return false, nil
	case s.late == atOnce:
		return false, errStillStored
	}
	s.late++
	return true, nil
}

// settle waits, for at least rest, until clients have asked for items of others, and enough clients have
// followed. The settling ends when no client asks for these any more, and the last pass, which began after
// that, has found nothing. If requests can't be counted any more, another pass follows after the rest.
func (s *staying) settle(ctx context.Context, l *runningMember, rest time.Duration, last found) (more bool, err error) {
	l.closeLinks()
	if !l.settles {
		l.settles = true
		l.enter(contract.PhaseSettling)
	}
	if err := l.resume(ctx); err != nil {
		return false, err
	}
	final, asked := s.silent, last == some
	for began := time.Now(); l.counts(); {
		if err := pace.Sleep(ctx, max(0, min(lookEvery, time.Until(l.until)))); err != nil {
			return false, err
		}
		requests, err := l.observe(ctx)
		if err != nil {
			return false, err
		}
		now := time.Now()
		rested := now.Sub(began) >= rest
		_, followed := l.clients.followed()
		asked = asked || requests > 0
		s.silent = l.clients.judged() && l.clients.silent()
		switch {
		case s.silent && final && !asked:
			return false, nil
		case !now.Before(l.until):
			return s.lastPasses(last)
		case rested && (s.silent || asked && followed):
			return true, nil
		}
	}
	s.silent = false
	return true, pace.Sleep(ctx, rest)
}

// pause returns the time without a pass after a pass that took took. The rest is short: until the next pass, the
// owner has an older value of a key that a client stores by the old list.
func (l *runningMember) pause(took time.Duration) time.Duration {
	if time.Since(l.until.Add(-l.patience)) >= eagerFor {
		took *= lateShare
	}
	return max(min(l.rest, shortRest), took)
}
