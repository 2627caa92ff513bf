package observe

import (
	"time"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
)

// DrainTimes returns how long a drain took until now, and how long each phase took.
func (o *State) DrainTimes(claim action.ClaimRef, drained *action.Receipt, now time.Time) (total time.Duration, phases map[string]time.Duration) {
	total, phases = o.drainings().Times(claim.UID, o.leavingSince(claim), now)
	seconds := plan.ReceiptNumbers(drained).Seconds
	for _, phase := range []contract.Phase{contract.PhaseConnecting, contract.PhaseAdding} {
		phases[string(phase)] = time.Duration(seconds[phase] * float64(time.Second))
	}
	return total, phases
}

// ReleaseTime is how long ago the claim's drainer ended, as the duration of the phase Releasing;
// nil if the end is not known.
func (o *State) ReleaseTime(claim action.ClaimRef, now time.Time) map[string]time.Duration {
	return o.drainings().SinceEnd(claim.UID, now)
}

func (o *State) drainings() read.Drainings {
	return read.Drainings{Jobs: o.Jobs, Pods: o.DrainerPods}
}

// leavingSince is when the claim's member was told to leave; zero if that is not known.
func (o *State) leavingSince(ref action.ClaimRef) time.Time {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.UID == ref.UID {
			return read.MarkedAt(c)
		}
	}
	return time.Time{}
}
