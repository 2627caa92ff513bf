package observe

import (
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims/read"
)

// DrainTimes returns how long a drain took until now, and how long each phase took.
func (s *State) DrainTimes(claim action.ClaimRef, now time.Time) (total time.Duration, phases map[string]time.Duration) {
	var left time.Time
	for i := range s.Claims {
		if c := &s.Claims[i]; c.UID == claim.UID {
			left, _ = c.LeavingAt()
		}
	}
	return s.drainings().Times(claim.UID, left, now)
}

// ReleaseTime is how long ago the claim's drainer ended, as the duration of the phase Releasing; nil if
// the end is not known.
func (s *State) ReleaseTime(claim action.ClaimRef, now time.Time) map[string]time.Duration {
	return s.drainings().SinceEnd(claim.UID, now)
}

func (s *State) drainings() read.Drainings {
	return read.Drainings{Jobs: s.Jobs.Jobs, Pods: s.Jobs.Pods}
}
