package move

import (
	"context"
	"time"

	"example.com/memcached-operator/drainer/pace"
)

// staying is a member that stays. The list has just changed, and clients that have not got it yet still store
// items here that others own now. So the move ends only when no pass has found any for quietFor, or when
// patience is over.
type staying struct {
	patience time.Duration
	// begin is the beginning of the move, began that of the present pass, and found the end of the last pass
	// that found items.
	begin, began, found time.Time
}

// anotherPass is runningMember.anotherPass for a member that stays.
func (s *staying) anotherPass(ctx context.Context, l *runningMember, passes int, last found) (more bool, err error) {
	now := time.Now()
	took := now.Sub(s.began)
	defer func() { s.began = time.Now() }()
	if passes == 0 {
		if s.found = now; s.begin.IsZero() { // otherwise a listing continues where a stream broke
			s.begin = now
		}
		return true, nil
	}
	if last == some {
		s.found = now
	}
	quiet := s.found.Add(quietFor)
	switch {
	case last == some && passes < atOnce:
		return true, nil
	case last == nothing && !s.began.Before(quiet):
		return false, nil
	case now.Sub(s.begin) >= s.patience:
		if last == nothing {
			return false, nil
		}
		return false, errStillStored
	}
	l.closeLinks() // memcached may close idle connections
	return true, pace.Sleep(ctx, l.pause(took, now.Sub(s.begin)))
}

// pause returns the time without a pass after a pass that took took, at since after the beginning. It is
// short: until the next pass, the owner has an older value of a key that a client stores by the old list.
func (l *runningMember) pause(took, since time.Duration) time.Duration {
	if since >= eagerFor {
		took *= lateShare
	}
	return max(min(l.rest, shortRest), took)
}
