package observe

import (
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/receipt"
	"example.com/memcached-operator/drainer/contract"
)

// DrainTimes returns how long a drain took until now, and how long each phase took. Kubernetes
// rounds its times to whole seconds.
func (o *State) DrainTimes(claim action.ClaimRef, drained *action.Receipt, now time.Time) (total time.Duration, phases map[string]time.Duration) {
	phases = map[string]time.Duration{}
	seconds := receipt.Numbers(drained).Seconds
	for _, phase := range []contract.Phase{contract.PhaseConnecting, contract.PhaseAdding} {
		phases[string(phase)] = time.Duration(seconds[phase] * float64(time.Second))
	}
	leaving := o.leavingSince(claim)
	if !leaving.IsZero() {
		total = max(time.Millisecond, now.Sub(leaving))
	}
	for i := range o.Jobs {
		job := &o.Jobs[i]
		if identity.ClaimUID(job) != claim.UID {
			continue
		}
		if !leaving.IsZero() {
			phases[string(cachev1alpha1.DrainWaiting)] = job.CreationTimestamp.Sub(leaving)
		}
		if ended := read.LastEnded(o.DrainerPods, job); ended != nil && !ended.StartedAt.IsZero() {
			phases[string(cachev1alpha1.DrainStarting)] = ended.StartedAt.Sub(job.CreationTimestamp.Time)
		}
	}
	return total, phases
}

// ReleaseTime is how long ago the claim's drainer ended, as the duration of the phase Releasing;
// nil if the end is not known.
func (o *State) ReleaseTime(claim action.ClaimRef, now time.Time) map[string]time.Duration {
	for i := range o.Jobs {
		job := &o.Jobs[i]
		if ended := read.LastEnded(o.DrainerPods, job); identity.ClaimUID(job) == claim.UID && ended != nil {
			return map[string]time.Duration{string(cachev1alpha1.DrainReleasing): now.Sub(ended.FinishedAt.Time)}
		}
	}
	return nil
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
