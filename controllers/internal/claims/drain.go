package claims

import (
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

// DrainPhase is the state of a departed member's volume.
type DrainPhase string

// The states of a departed member's volume.
const (
	// Leaving: the member still runs, and its items are moved.
	Leaving   DrainPhase = "Leaving"
	Waiting   DrainPhase = "Waiting"
	Draining  DrainPhase = "Draining"
	Releasing DrainPhase = "Releasing"
	Held      DrainPhase = "Held"
	Failed    DrainPhase = "Failed"
	// Kept: the claim is retained, or its deletion is not up to the operator. It is not in
	// Volumes.Drains.
	Kept DrainPhase = "Kept"
)

// Reasons of a drain's state.
const (
	PodPresent     = cachev1alpha1.ReasonPodPresent
	InTurn         = cachev1alpha1.ReasonInTurn
	Hibernating    = cachev1alpha1.ReasonHibernating
	HeldByRequest  = cachev1alpha1.ReasonHeld
	ReceiptInvalid = cachev1alpha1.ReasonReceiptInvalid
	JobGaveUp      = cachev1alpha1.ReasonJobFailed
	ClaimDeleted   = cachev1alpha1.ReasonClaimDeleted
	SettingAside   = cachev1alpha1.ReasonSettingAside
	InTheWay       = cachev1alpha1.ReasonBlockedByVolume
	Retrying       = cachev1alpha1.ReasonRetrying
	NameTaken      = cachev1alpha1.ReasonNameTaken
	Refused        = cachev1alpha1.ReasonRefused
)

// DrainState is how the claim of one leaving or departed member stands.
type DrainState struct {
	Claim   Claim
	Phase   DrainPhase
	Reason  string
	Message string
	// Why is set while Releasing.
	Why action.Release
	// RetryAt is when a failed drain is tried again; zero if only a person can decide.
	// Claim.Attempts has how often it failed before.
	RetryAt time.Time
	// Job drains the claim; nil if there is none. Mover is the Job that moves the items of its
	// member while the member is leaving.
	Job, Mover *Job
}

// DeletedClaim is a claim that another client deleted.
type DeletedClaim struct {
	Claim action.ClaimRef
	// Message says what the operator does with the volume, or what a person has to do.
	Message string
}

// Volumes is the decision about the claims that are no longer just a member's.
type Volumes struct {
	// Drains has an entry for each claim that is to be drained or released, highest
	// ordinal first.
	Drains []DrainState
	// DeletedClaims are claims that another client deleted: those of members that stay, and those
	// whose volume the operator can't set aside.
	DeletedClaims []DeletedClaim
}

// Given is what others have decided before.
type Given struct {
	*Terms
	// Parallelism is how many drains may run at once.
	Parallelism int32
	// Wanted is how many members are wanted. Survivors is how many stay: drains give items to them.
	// 0 hibernates.
	Wanted, Survivors int32
	// Leaves tells how a member leaves that still runs; the phase is empty if it doesn't run.
	Leaves func(*Claim) (phase DrainPhase, reason, message string)
	// Waits tells what the drain of a departed member waits for; the reason is empty if it may begin.
	// WaitsUntil is when to ask again if no event comes; it may be in the past.
	Waits      func(*Claim) (reason, message string)
	WaitsUntil time.Time
	// MovesNow names what is at work and gives items to members; empty if nothing is.
	MovesNow string
	// StoredBy is what the claim that takes over a volume has as Moved.
	StoredBy func(*Claim) int64
}

// Decide takes the claim of each leaving or departed member, and each deleted claim, one step
// further, in the order of the claims.
func (f *Facts) Decide(g *Given) (v Volumes, w Work) {
	slots := f.Slots(g.Parallelism)
	for i := range f.Claims {
		d := &decision{Facts: f, Given: g, c: &f.Claims[i], job: f.JobOf(f.Claims[i].UID)}
		if d.c.LeavingSince.IsZero() {
			if message := d.member(); message != "" {
				v.DeletedClaims = append(v.DeletedClaims, DeletedClaim{d.c.Ref(), message})
			}
			w.Then(d.Work)
			continue
		}
		s := d.departed(slots)
		if s.Phase != Kept {
			v.Drains = append(v.Drains, s)
		}
		if s.Reason == ClaimDeleted {
			v.DeletedClaims = append(v.DeletedClaims, DeletedClaim{d.c.Ref(), s.Message})
		}
		for _, a := range d.Actions {
			if _, begins := a.(action.CreateDrain); begins {
				slots--
			}
		}
		w.Then(d.Work)
	}
	return v, w
}

// decision is the decision about one claim, with the Job that drains it.
type decision struct {
	*Facts
	*Given
	c   *Claim
	job *Job
	Work
}

func (s DrainState) is(phase DrainPhase, reason, message string) DrainState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}

// member decides about the claim of a member that stays. If the claim was deleted, its volume is
// set aside when the pod is gone. deleted says how a deleted claim stands.
func (d *decision) member() (deleted string) {
	c, aside := d.c, d.AsideOf(d.c)
	switch {
	case !c.Deleting || !c.Finalizer:
		return ""
	case c.Request == Skip && aside != nil && !c.HandsOver(aside):
		_, _, deleted = d.skipAside(aside)
	case c.Request == Skip && !c.HandsOver(aside):
		d.ReturnVolume(d.Facts, c)
		d.Do(action.ReleaseClaim{Claim: c.Ref(), Why: action.BySkip})
	case c.Volume == "":
		d.Do(action.ReleaseClaim{Claim: c.Ref(), Why: action.NeverBound})
	default:
		_, _, deleted = d.setAsideDeleted()
	}
	if len(d.Actions) > 0 {
		if why, is := d.Withdraw(d.Facts, c); is {
			return "it was deleted, and " + why.Message()
		}
	}
	return deleted
}

// departed decides about the claim of a leaving or departed member.
func (d *decision) departed(slots int) DrainState {
	s := d.drain(slots)
	if len(d.Actions) > 0 || s.Phase == Waiting {
		if why, is := d.Withdraw(d.Facts, d.c); is {
			s.RetryAt, s.Why = why.Until, ""
			s = s.is(Failed, why.Reason(), why.Message())
		}
	}
	return d.setAsideForReturn(s)
}

func (d *decision) drain(slots int) DrainState {
	c := d.c
	state := DrainState{Claim: *c, Job: d.job}
	switch aside := d.AsideOf(c); {
	case c.HandsOver(aside) || d.TakesOver(c):
		return state.is(d.HandOver(d.Facts, c, aside, d.MovesNow))
	case aside != nil:
		return state.is(d.skipAside(aside))
	case c.Request == Skip && c.Deleting && d.pendingAsideOf(c) != nil:
		return state.is(d.skipAside(d.pendingAsideOf(c)))
	}
	if phase, reason, message := d.Leaves(c); phase != "" {
		return state.is(phase, reason, message)
	}
	continues := d.DrainContinues(c)
	switch why, release := d.reasonToRelease(d.Terms, c); {
	case release && d.MemberExists(c):
		return state.is(d.shutsDown())
	case why == action.ByPolicyRetain && !c.Aside && !c.Deleting && c.Ordinal < d.Wanted: // it keeps its member from returning
		return d.setAsideRetained(state)
	case why == action.ByPolicyRetain && c.Deleting && c.CanBeSetAside() && continues:
		return d.follow(state)
	case why == action.ByPolicyRetain && c.Deleting && (c.CanBeSetAside() || c.Where == Promised):
		return state.is(d.setAsideDeleted())
	case release:
		d.ReturnVolume(d.Facts, c)
		d.release(why)
		state.Why = why
		if why == action.ByPolicyRetain {
			return state.is(Kept, "", "")
		}
		return state.is(Releasing, "", "")
	case c.Deleting && !c.Finalizer && !continues:
		d.DeleteJob(d.job, "its claim is released")
		return state.is(Kept, "", "") // without our finalizer, Kubernetes removes the claim
	case c.Deleting && !continues:
		return state.is(d.setAsideDeleted())
	case d.Stranded(c):
		return state.is(Failed, ClaimDeleted, fmt.Sprintf("it was to take over volume %s, which is gone, or bound to another claim: %s", c.Volume, orSkip))
	case d.job != nil:
		return d.follow(state)
	}
	return d.begin(state, slots)
}

func (d *decision) shutsDown() (phase DrainPhase, reason, message string) {
	return Waiting, PodPresent, fmt.Sprintf("member %d is still shutting down", d.c.Ordinal)
}

// begin starts the drain of a claim that has no Job, as soon as nothing forbids it.
func (d *decision) begin(state DrainState, slots int) DrainState {
	c := d.c
	if c.Request == Retry {
		d.Do(action.ClearRetry{Claim: c.Ref()}) // the drain is about to start anyway
	}
	switch {
	case c.Request == Hold:
		return state.is(Held, HeldByRequest, "remove the annotation cache.example.com/drain=hold to start the drain")
	case d.MemberExists(c):
		return state.is(d.shutsDown())
	case d.Survivors == 0:
		return state.is(Waiting, Hibernating, "the cluster hibernates: the drain starts when members return")
	case slots <= 0:
		return state.is(Waiting, InTurn, "another drain is under way")
	}
	if reason, message := d.Waits(c); reason != "" {
		d.WakeAfter(d.Now, d.WaitsUntil)
		return state.is(Waiting, reason, message)
	}
	d.Do(action.CreateDrain{Claim: c.Ref(), Survivors: d.Survivors, NeverStarted: c.NeverStarted})
	return state.is(Draining, "", "")
}

// Unmounted tells what a drain of the claim waits for until no pod uses the volume and no member
// returns empty; the reason is empty if it waits for nothing.
func (f *Facts) Unmounted(c *Claim) (reason, message string) {
	switch {
	case f.MemberExists(c):
		return PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal)
	case slices.Contains(f.ClaimsWithDrainerPod, c.UID):
		return InTurn, "the pod of an earlier drain of this claim is still there"
	case f.WaitsForReturn() != "":
		return InTurn, f.WaitsForReturn()
	}
	return "", ""
}

// follow decides about a claim that has a Job.
func (d *decision) follow(state DrainState) DrainState {
	c, job := d.c, d.job
	if job.Deleting {
		return state.is(Waiting, InTurn, "an earlier Job of this drain is being deleted")
	}
	if why := d.WaitsForReturn(); why != "" && job.MayRun() {
		d.DeleteJob(job, why)
		return state.is(Waiting, InTurn, why)
	}
	if job.State == JobActive {
		why := job.Replaced(c.Request == Retry)
		if why != "" {
			d.DeleteJob(job, why)
		}
		if c.Request == Retry {
			d.Do(action.ClearRetry{Claim: c.Ref()}) // it has begun, or begins anew
		}
		if why != "" {
			return state.is(Waiting, InTurn, "the drain starts anew when its Job is gone: "+why)
		}
		return state.is(Draining, "", "")
	}
	invalid := job.drained(c)
	switch {
	case job.State == JobComplete && invalid == nil:
		// The event of this write starts the next reconcile, which releases the claim. Status has
		// the receipt by then, too.
		d.Do(action.RecordReceipt{Claim: c.Ref(), Receipt: job.Receipt})
		state.Claim.Receipt, state.Why = job.Receipt, action.ByReceipt
		return state.is(Releasing, "", "")
	case c.Request == Retry && !c.Deleting:
		// Both steps are in one plan, because a request that outlived its Job would restart every
		// Job that fails.
		d.DeleteJob(job, "a person asked for a retry")
		d.Do(action.ClearRetry{Claim: c.Ref()})
		return state.is(Waiting, InTurn, "the retry starts when the failed Job is gone")
	case c.Request == Hold && job.Retryable():
		_, message := failureOf(job, invalid)
		if job.PodKept {
			d.DeleteJob(job, "a person holds its claim, and the Job would go on when its pod ends")
		}
		return state.is(Held, HeldByRequest, "the last attempt failed: "+message+"; it is tried again when you remove the annotation cache.example.com/drain=hold")
	}
	f, again := d.TryAgain(d.Now, c, job, invalid)
	if again {
		return state.is(Waiting, Retrying, "the next attempt starts when the failed Job is gone")
	}
	state.RetryAt = f.RetryAt
	return state.is(Failed, f.Reason, f.Message+"; "+wayOut)
}

const wayOut = "the claim is kept: see the drainer's log, then annotate the claim with " +
	"cache.example.com/drain=retry, or =skip to give its items up"

// release plans the last steps. If the operator dies in between, the next plan finds each step done
// or not done. The claim comes first: if the live check refuses the reason that the cache gave, the
// Job and its log stay.
func (d *decision) release(why action.Release) {
	c := d.c
	if !c.Deleting && why != action.ByPolicyRetain {
		d.Do(action.DeleteClaim{Claim: c.Ref(), Why: why})
		if why == action.ByUnrecoverable {
			return // only the Job has the reason, and status needs it once more
		}
	}
	if c.Finalizer {
		d.Do(action.ReleaseClaim{Claim: c.Ref(), Why: why})
	}
	d.DeleteJob(d.job, "its claim is released: "+string(why))
}
