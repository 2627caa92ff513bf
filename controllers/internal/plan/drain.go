package plan

import (
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
)

// DrainPhase is the state of a departed member's volume.
type DrainPhase string

// The states of a departed member's volume.
const (
	// Leaving: the member runs on, and its items are moved.
	Leaving   DrainPhase = "Leaving"
	Waiting   DrainPhase = "Waiting"
	Draining  DrainPhase = "Draining"
	Releasing DrainPhase = "Releasing"
	Held      DrainPhase = "Held"
	Failed    DrainPhase = "Failed"
	// Kept: the claim is retained, or its deletion is not up to the operator. It is not in
	// Plan.Drains.
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
	Claim   claim.Claim
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

// drain takes the claim of each leaving or departed member one step further, highest
// ordinal first.
func (p *Plan) drain(o *Observed) {
	slots := o.drainSlots()
	for i := range o.Claims {
		c := &o.Claims[i]
		first, before := len(p.Actions), slots
		if c.LeavingSince.IsZero() {
			p.decideMember(o, c)
			p.withdrawRefusedMember(o, c, first)
			continue
		}
		s, held := p.withdrawRefusedDrain(o, first, p.decideDrain(o, c, &slots))
		if held {
			slots = before
		}
		s = p.setAsideForReturn(o, s)
		if s.Reason == ClaimDeleted {
			p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), s.Message})
		}
		if s.Phase != Kept {
			p.Drains = append(p.Drains, s)
		}
	}
}

// drainSlots is how many more drains may begin.
func (o *Observed) drainSlots() int {
	slots := int(o.Cluster.Parallelism)
	for i := range o.Jobs {
		if o.Jobs[i].running() {
			slots--
		}
	}
	return slots
}

// decideMember decides about the claim of a member that stays. If the claim was deleted, its volume
// is set aside when the pod is gone.
func (p *Plan) decideMember(o *Observed, c *claim.Claim) {
	switch {
	case !c.Deleting || !c.Finalizer:
	case c.Request == claim.Skip && o.asideOf(c) != nil && !c.HandsOver(o.asideOf(c)):
		_, _, message := p.skipAside(o, o.asideOf(c))
		p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), message})
	case c.Request == claim.Skip && !c.HandsOver(o.asideOf(c)):
		p.returnVolume(o, c)
		p.add(action.ReleaseClaim{Claim: c.Ref(), Why: action.BySkip})
	case c.Volume == "":
		p.add(action.ReleaseClaim{Claim: c.Ref(), Why: action.NeverBound})
	default:
		_, _, message := p.setAsideDeleted(o, c, o.jobFor(c.UID))
		p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), message})
	}
}

// decideDrain decides about the claim of one leaving or departed member.
func (p *Plan) decideDrain(o *Observed, c *claim.Claim, slots *int) DrainState {
	job := o.jobFor(c.UID)
	state := DrainState{Claim: *c, Job: job, Mover: o.moveOf(c)}
	switch aside := o.asideOf(c); {
	case c.HandsOver(aside) || o.takesOver(c):
		return state.is(p.handOver(o, c, aside))
	case aside != nil:
		return state.is(p.skipAside(o, aside))
	case c.Request == claim.Skip && c.Deleting && o.pendingAsideOf(c) != nil:
		return state.is(p.skipAside(o, o.pendingAsideOf(c)))
	case p.runsOn(c):
		return p.leaving(o, c, state)
	}
	switch why, release := reasonToRelease(o, c); {
	case release && o.memberExists(c):
		return state.is(Waiting, PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal))
	case why == action.ByPolicyRetain && o.retainedInTheWay(c):
		return p.setAsideRetained(c, job, state)
	case why == action.ByPolicyRetain && c.Deleting && c.CanBeSetAside() && o.drainContinues(c, job):
		return p.followDrain(o, c, job, state)
	case why == action.ByPolicyRetain && c.Deleting && (c.CanBeSetAside() || c.Where == claim.Promised):
		return state.is(p.setAsideDeleted(o, c, job))
	case release:
		p.returnVolume(o, c)
		p.release(c, job, why)
		state.Why = why
		if why == action.ByPolicyRetain {
			return state.is(Kept, "", "")
		}
		return state.is(Releasing, "", "")
	case c.Deleting && !c.Finalizer && !o.drainContinues(c, job):
		p.deleteJob(job, "its claim is released")
		return state.is(Kept, "", "") // without our finalizer, Kubernetes removes the claim
	case c.Deleting && !o.drainContinues(c, job):
		return state.is(p.setAsideDeleted(o, c, job))
	case o.stranded(c):
		return state.is(Failed, ClaimDeleted, fmt.Sprintf("it was to take over volume %s, which is gone, or bound to another claim: %s", c.Volume, orSkip))
	case job != nil:
		return p.followDrain(o, c, job, state)
	}
	return p.beginDrain(o, c, state, slots)
}

// beginDrain starts the drain of a claim that has no Job, as soon as nothing forbids it.
func (p *Plan) beginDrain(o *Observed, c *claim.Claim, state DrainState, slots *int) DrainState {
	if c.Request == claim.Retry {
		p.add(action.ClearRetry{Claim: c.Ref()}) // the drain is about to start anyway
	}
	switch {
	case c.Request == claim.Hold:
		return state.is(Held, HeldByRequest, "remove the annotation cache.example.com/drain=hold to start the drain")
	case o.memberExists(c):
		return state.is(Waiting, PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal))
	case p.Replicas == 0:
		return state.is(Waiting, Hibernating, "the cluster hibernates: the drain starts when members return")
	}
	if *slots <= 0 {
		return state.is(Waiting, InTurn, "another drain is under way")
	}
	if reason, message := o.drainWaits(c, p.Replicas); reason != "" {
		p.wakeAfter(o.Now, o.leasesExpire())
		return state.is(Waiting, reason, message)
	}
	*slots--
	p.add(action.CreateDrain{Claim: c.Ref(), Survivors: p.Replicas, NeverStarted: c.NeverStarted})
	return state.is(Draining, "", "")
}

// drainWaits tells what a drain of the claim to that many survivors waits for. The reason
// is empty if it may begin. The plan asks this, and MayDrain asks it about live state.
func (o *Observed) drainWaits(c *claim.Claim, survivors int32) (reason, message string) {
	switch {
	case o.memberExists(c):
		return PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal)
	case slices.Contains(o.ClaimsWithDrainerPod, c.UID):
		return InTurn, "the pod of an earlier drain of this claim is still there"
	case o.waitsForReturn() != "":
		return InTurn, o.waitsForReturn()
	case o.earlierDrainDue(c):
		return InTurn, "the volume of another member is drained first: its values are newer"
	case o.waitsForLeases() != "":
		return InTurn, o.waitsForLeases() + ": a drain would take a lease for a newer value"
	case o.moveRuns() || o.drainedAfterMove(c) && o.moving():
		return InTurn, "the survivors' items are moved first"
	case c.Pending:
		return SettingAside, fmt.Sprintf("volume %s is not bound to the claim yet", c.Volume)
	case survivors > c.Ordinal && !c.Aside || o.StatefulSet.Replicas != survivors:
		// This plan makes the StatefulSet smaller, which brings an event.
		return PodPresent, fmt.Sprintf("the StatefulSet is not at %d members yet", survivors)
	case o.Record.Ring.Size != survivors:
		// With another ring, items would go to members that clients don't ask for them. The next
		// ring change would treat those members as empty.
		return InTurn, fmt.Sprintf("the clients' list must have %d members first", survivors)
	}
	return "", ""
}

func (s DrainState) is(phase DrainPhase, reason, message string) DrainState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}

// followDrain decides about a claim that has a Job.
func (p *Plan) followDrain(o *Observed, c *claim.Claim, job *Job, state DrainState) DrainState {
	if job.Deleting {
		return state.is(Waiting, InTurn, "an earlier Job of this drain is being deleted")
	}
	if why := o.waitsForReturn(); why != "" && job.mayRun() {
		p.deleteJob(job, why)
		return state.is(Waiting, InTurn, why)
	}
	if job.State == JobActive {
		if why := job.replaced(c.Request == claim.Retry); why != "" {
			p.deleteJob(job, why)
			if c.Request == claim.Retry {
				p.add(action.ClearRetry{Claim: c.Ref()})
			}
			return state.is(Waiting, InTurn, "the drain starts anew when its Job is gone: "+why)
		}
		if c.Request == claim.Retry {
			p.add(action.ClearRetry{Claim: c.Ref()}) // it has begun
		}
		return state.is(Draining, "", "")
	}
	invalid := checkReceipt(job, c)
	switch {
	case job.State == JobComplete && invalid == nil:
		// The event of this write starts the next reconcile, which releases the claim. Status has
		// the receipt by then, too.
		p.add(action.RecordReceipt{Claim: c.Ref(), Receipt: job.Receipt})
		state.Claim.Receipt, state.Why = job.Receipt, action.ByReceipt
		return state.is(Releasing, "", "")
	case c.Request == claim.Retry && !c.Deleting:
		// Both steps are in one plan, because a request that outlived its Job would restart every
		// Job that fails.
		p.add(action.DeleteJob{Name: job.Name, UID: job.UID, ClaimUID: job.ClaimUID, Reason: "a person asked for a retry"}, action.ClearRetry{Claim: c.Ref()})
		return state.is(Waiting, InTurn, "the retry starts when the failed Job is gone")
	}
	if c.Request == claim.Hold && job.retryable() {
		_, message := failureOf(job, invalid)
		if job.PodKept {
			p.deleteJob(job, "a person holds its claim, and the Job would go on when its pod ends")
		}
		return state.is(Held, HeldByRequest, "the last attempt failed: "+message+"; it is tried again when you remove the annotation cache.example.com/drain=hold")
	}
	f, again := p.tryAgain(o, c, job, invalid)
	if again {
		return state.is(Waiting, Retrying, "the next attempt starts when the failed Job is gone")
	}
	state.RetryAt = f.retryAt
	return state.is(Failed, f.reason, f.message+"; "+wayOut)
}

func checkReceipt(job *Job, c *claim.Claim) error {
	if job.ReceiptErr != nil {
		return job.ReceiptErr
	}
	return job.Receipt.AddsUp(string(c.UID))
}

const wayOut = "the claim is kept: see the drainer's log, then annotate the claim with " +
	"cache.example.com/drain=retry, or =skip to give its items up"

// release plans the last steps. If the operator dies in between, the next plan finds each step done
// or not done. The claim comes first: if the live check refuses the reason that the cache gave, the
// Job and its log stay.
func (p *Plan) release(c *claim.Claim, job *Job, why action.Release) {
	if !c.Deleting && why != action.ByPolicyRetain {
		p.add(action.DeleteClaim{Claim: c.Ref(), Why: why})
		if why == action.ByUnrecoverable {
			return // only the Job has the reason, and status needs it once more
		}
	}
	if c.Finalizer {
		p.add(action.ReleaseClaim{Claim: c.Ref(), Why: why})
	}
	p.deleteJob(job, "its claim is released: "+string(why))
}

func (p *Plan) deleteJob(job *Job, reason string) {
	if job != nil && !job.Deleting {
		p.add(action.DeleteJob{Name: job.Name, UID: job.UID, ClaimUID: job.ClaimUID, Reason: reason})
	}
}
