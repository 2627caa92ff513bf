package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

const (
	// readEvery is how often the file that says when to begin is read.
	readEvery = 10 * time.Millisecond
	// surveyEvery is how often the supervisor scans the items again meanwhile, so that it knows which were
	// used most recently. forever stands for never.
	surveyEvery = 30 * time.Second
	forever     = 1 << 62
)

// starting is a move that waits until it may begin. Nothing may be moved before clients are told of the new
// ring: they would miss the item where they look. But everything that precedes the first item can be done
// before.
type starting struct {
	contract.Begin
	e     *Engine
	until time.Time
	// told means that clients were told of the new ring, and that the move begins when enough of them have followed.
	told, begun bool
}

// notBegun means that a move was not told in time to begin.
type notBegun struct{ contract.Begin }

func (e *notBegun) Error() string {
	return fmt.Sprintf("the file %s did not say %.80q within %s: nothing was moved", e.File, e.When, e.Within)
}

// Failure returns the receipt's reason and the exit code.
func (e *notBegun) Failure() (reason string, exitCode int) {
	return contract.ReasonNotBegun, contract.ExitFailed
}

// start waits until the move may begin, for at most atMost, and tells whether it may.
func (l *runningMember) start(ctx context.Context, atMost time.Duration) (begun bool, err error) {
	s := l.starting
	if s == nil || s.begun {
		return true, nil
	}
	if s.until.IsZero() {
		if err := s.prepare(ctx, l); err != nil {
			return false, err
		}
	}
	l.dialRemovers(ctx)
	for end := time.Now().Add(atMost); ; {
		now := time.Now()
		if !s.told {
			if err := s.hear(now, l); err != nil {
				return false, err
			}
		}
		if s.told {
			if s.begun = s.follows(now, l); s.begun {
				l.clients.passes()
				s.e.beginPhase(contract.PhaseAdding)
				return true, nil
			}
		}
		if now.After(end) {
			return false, nil
		}
		if l.counts() && now.Sub(l.looked) >= lookEvery {
			if _, err := l.observe(ctx); err != nil {
				return false, err
			}
		}
		if err := pace.Sleep(ctx, readEvery); err != nil {
			return false, err
		}
	}
}

// hear looks whether the move is told to begin. hear returns an error if that takes too long.
func (s *starting) hear(now time.Time, l *runningMember) error {
	says, leases := s.says()
	switch {
	case says:
		s.told = true
		l.beginPatience(now)
		if leases {
			l.lease(s.e)
		} else if _, followed := l.clients.followed(); !followed {
			s.e.beginPhase(contract.PhaseSettling)
		}
	case now.After(s.until):
		return &notBegun{s.Begin}
	}
	return nil
}

// follows tells whether enough clients have followed the list.
func (s *starting) follows(now time.Time, l *runningMember) bool {
	why, followed := l.clients.followed()
	switch {
	case l.leased != nil: // a router finds the item in either place
		return true
	case !followed && now.Before(l.until):
		return false
	case !followed:
		why = "patience is over, and " + why
	}
	if l.patience > 0 && s.Follow {
		fmt.Fprintf(s.e.Log, "the move begins: %s\n", why)
	}
	return true
}

// prepare opens the connections to the owners, and counts the requests of clients before they are told.
func (s *starting) prepare(ctx context.Context, l *runningMember) error {
	if err := s.e.each(func(_ int, w *memcache.Writer) error { return w.Prepare() }); err != nil {
		return err
	}
	if l.patience > 0 && (l.leaving != nil || s.Follow) {
		if err := l.resume(ctx); err != nil {
			return err
		}
	}
	if s.Follow && l.counts() {
		if err := l.measure(ctx); err != nil {
			return err
		}
	}
	s.until = time.Now().Add(s.Within)
	s.e.beginPhase(contract.PhasePrepared)
	return nil
}

// measure counts the requests of clients before these are told.
func (l *runningMember) measure(ctx context.Context) error {
	for began := time.Now(); l.counts() && !l.clients.measured(time.Since(began)); {
		if sum, _ := l.clients.sum(); l.starting != nil && sum.took >= measureFor {
			if told, _ := l.starting.says(); told {
				break // what follows is no measure any more
			}
		}
		if err := pace.Sleep(ctx, lookEvery); err != nil {
			return err
		}
		if _, err := l.observe(ctx); err != nil {
			return err
		}
	}
	l.clients.measure()
	return nil
}

// says returns whether the file tells the move to begin, and whether leases are to be taken. The file may not
// exist yet.
func (s *starting) says() (begin, leases bool) {
	f, err := os.Open(s.File)
	if err != nil {
		return false, false
	}
	defer f.Close()
	text := make([]byte, len(s.When)+len(contract.BeginLeases)+2)
	n, err := io.ReadFull(f, text)
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, false
	}
	said, leases := strings.CutSuffix(strings.TrimSuffix(string(text[:n]), "\n"), contract.BeginLeases)
	return said == s.When, leases
}
