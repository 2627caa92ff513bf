package plan

import (
	"fmt"
	"slices"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// justNow stands for the time of a mark that this plan writes: after all others.
var justNow = time.Unix(1<<40, 0)

// LeavingAt is when the claim's member was told to leave, if that is written.
func (c *Claim) LeavingAt() (at time.Time, told bool) {
	return c.LeavingSince, !c.LeavingSince.IsZero() && c.LeavingSince != justNow
}

// DrainPhase is the state of a departed member's volume.
type DrainPhase string

// The states of such a volume.
const (
	Waiting   DrainPhase = "Waiting"
	Draining  DrainPhase = "Draining"
	Releasing DrainPhase = "Releasing"
	Held      DrainPhase = "Held"
	Failed    DrainPhase = "Failed"
	// Kept: by policy Retain; it isn't on its way out.
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
)

// DrainState is how the claim of one departed member stands.
type DrainState struct {
	Claim   Claim
	Phase   DrainPhase
	Reason  string
	Message string
	// Why is set while Releasing.
	Why Release
	// RetryAt, of one that has Failed, is when it is tried again; zero where only a
	// person can say. Claim.Attempts has how often it has failed before.
	RetryAt time.Time
	// Job that drains it, if there is one.
	Job *Job
}

// drain moves the claim of each departed member one step on its way, highest ordinal first.
func (p *Plan) drain(o *Observed) {
	slots := int(o.Cluster.Parallelism)
	for i := range o.Jobs {
		if o.Jobs[i].running() {
			slots--
		}
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if c.LeavingSince.IsZero() {
			p.decideMember(o, c)
			continue
		}
		s := p.setAsideForReturn(o, p.decideDrain(o, c, &slots))
		if s.Reason == ClaimDeleted {
			p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), s.Message})
		}
		if s.Phase != Kept {
			p.Drains = append(p.Drains, s)
		}
	}
}

// decideMember decides about the claim of a member that stays: one that somebody
// deleted is set aside when its pod is gone.
func (p *Plan) decideMember(o *Observed, c *Claim) {
	switch {
	case !c.Deleting || !c.Finalizer:
	case c.Request == Skip && o.asideOf(c) != nil && !c.handsOver(o.asideOf(c)):
		_, _, message := p.skipAside(o.asideOf(c))
		p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), message})
	case c.Request == Skip && !c.handsOver(o.asideOf(c)):
		p.returnVolume(o, c)
		p.add(ReleaseClaim{c.Ref(), BySkip})
	case c.Volume == "":
		p.add(ReleaseClaim{c.Ref(), NeverBound})
	default:
		_, _, message := p.setAsideDeleted(o, c, o.jobFor(c.UID))
		p.DeletedClaims = append(p.DeletedClaims, DeletedClaim{c.Ref(), message})
	}
}

// decideDrain decides about the claim of one departed member.
func (p *Plan) decideDrain(o *Observed, c *Claim, slots *int) DrainState {
	job := o.jobFor(c.UID)
	state := DrainState{Claim: *c, Job: job}
	switch aside := o.asideOf(c); {
	case c.handsOver(aside) || o.takesOver(c):
		return state.is(p.handOver(c, aside))
	case aside != nil:
		return state.is(p.skipAside(aside))
	case c.Request == Skip && c.Deleting && o.pendingAsideOf(c) != nil:
		return state.is(p.skipAside(o.pendingAsideOf(c)))
	}
	switch why, release := reasonToRelease(o, c); {
	case release && o.memberExists(c):
		return state.is(Waiting, PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal))
	case why == ByPolicyRetain && o.retainedInTheWay(c):
		return p.setAsideRetained(c, job, state)
	case why == ByPolicyRetain && c.Deleting && c.canBeSetAside() && o.drainGoesOn(c, job):
		return p.followDrain(o, c, job, state)
	case why == ByPolicyRetain && c.Deleting && c.canBeSetAside():
		return state.is(p.setAsideDeleted(o, c, job))
	case release:
		p.returnVolume(o, c)
		p.release(c, job, why)
		state.Why = why
		if why == ByPolicyRetain {
			return state.is(Kept, "", "")
		}
		return state.is(Releasing, "", "")
	case c.Deleting && !c.Finalizer && !o.drainGoesOn(c, job):
		p.deleteJob(job, "its claim is let go")
		return state.is(Kept, "", "") // on its way, without us
	case c.Deleting && !o.drainGoesOn(c, job):
		return state.is(p.setAsideDeleted(o, c, job))
	case o.stranded(c):
		return state.is(Failed, ClaimDeleted, fmt.Sprintf("it was to take over volume %s, which is gone, or bound to another claim: %s", c.Volume, orSkip))
	case job != nil:
		return p.followDrain(o, c, job, state)
	}
	if c.Request == Retry {
		p.add(ClearRetry{c.Ref()}) // it is about to start anyway
	}
	switch {
	case c.Request == Hold:
		return state.is(Held, HeldByRequest, "remove the annotation cache.example.com/drain=hold to start the drain")
	case o.memberExists(c):
		return state.is(Waiting, PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal))
	case p.Replicas == 0:
		return state.is(Waiting, Hibernating, "the cluster hibernates: the drain starts when members return")
	case *slots <= 0:
		return state.is(Waiting, InTurn, "another drain is under way")
	}
	if reason, message := o.drainWaits(c, p.Replicas); reason != "" {
		return state.is(Waiting, reason, message)
	}
	*slots--
	p.add(CreateDrain{c.Ref(), p.Replicas, c.NeverStarted})
	return state.is(Draining, "", "")
}

// drainWaits tells what a drain of the claim into so many members waits for; an empty
// reason where it may begin. The plan asks, and MayDrain of what is live.
func (o *Observed) drainWaits(c *Claim, survivors int32) (reason, message string) {
	switch {
	case o.memberExists(c):
		return PodPresent, fmt.Sprintf("member %d is still shutting down", c.Ordinal)
	case slices.Contains(o.ClaimsWithDrainerPod, c.UID):
		return InTurn, "an earlier drainer of it is not gone yet"
	case o.newerDrainDue(c):
		return InTurn, "the volume of a member that left later is drained first: its values are newer"
	case o.placementRuns() || o.drainedAfterPlacement(c) && o.placing():
		return InTurn, "the items of members that stay are placed first"
	case c.Pending:
		return SettingAside, fmt.Sprintf("volume %s is not bound to the claim yet", c.Volume)
	case survivors > c.Ordinal && !c.Aside || o.StatefulSet.Replicas != survivors:
		// The StatefulSet is made smaller by this very plan; its event is next.
		return PodPresent, fmt.Sprintf("the StatefulSet is not at %d members yet", survivors)
	case o.Record.Ring.Size != survivors:
		// By another ring items would come to members that clients don't ask, or don't
		// ask for these: the next ring would take them for empty.
		return InTurn, fmt.Sprintf("clients are told of %d members first", survivors)
	}
	return "", ""
}

func (s DrainState) is(phase DrainPhase, reason, message string) DrainState {
	s.Phase, s.Reason, s.Message = phase, reason, message
	return s
}

// followDrain decides about such a claim that has a Job.
func (p *Plan) followDrain(o *Observed, c *Claim, job *Job, state DrainState) DrainState {
	if job.Deleting {
		return state.is(Waiting, InTurn, "an earlier Job of this drain is on its way out")
	}
	if job.State == JobActive {
		if c.Request == Retry {
			p.add(ClearRetry{c.Ref()}) // it runs
		}
		return state.is(Draining, "", "")
	}
	invalid := checkReceipt(job, c)
	switch {
	case job.State == JobComplete && invalid == nil:
		// Its event brings the release: by then status has the receipt, too.
		p.add(RecordReceipt{c.Ref(), job.Receipt})
		state.Claim.Receipt, state.Why = job.Receipt, ByReceipt
		return state.is(Releasing, "", "")
	case c.Request == Retry && !c.Deleting:
		// Both at once: a request that outlived its Job would start another one
		// for each that fails.
		p.add(DeleteJob{Name: job.Name, UID: job.UID, Reason: "a person asked for a retry"}, ClearRetry{c.Ref()})
		return state.is(Waiting, InTurn, "the retry starts when the failed Job is gone")
	}
	if c.Request == Hold && job.mendable() {
		_, message := failureOf(job, invalid)
		if job.PodKept {
			p.deleteJob(job, "a person holds its claim, and the Job would go on when its pod ends")
		}
		return state.is(Held, HeldByRequest, "the last attempt failed: "+message+"; remove the annotation cache.example.com/drain=hold, and it is tried again")
	}
	f, again := p.tryAgain(o, c, job, invalid)
	if again {
		return state.is(Waiting, Retrying, "the next attempt starts when the failed Job is gone")
	}
	state.RetryAt = f.retryAt
	return state.is(Failed, f.reason, f.message+"; "+wayOut)
}

func checkReceipt(job *Job, c *Claim) error {
	if job.ReceiptErr != nil {
		return job.ReceiptErr
	}
	return job.Receipt.AddsUp(string(c.UID))
}

const wayOut = "the claim is kept: see the drainer's log, then annotate the claim with " +
	"cache.example.com/drain=retry, or =skip to give its items up"

// release takes the last steps. Each is found undone or done by the next plan,
// should the operator die in between. The claim is first: where the live claim
// doesn't give the reason that the cache did, the Job stays, and its log.
func (p *Plan) release(c *Claim, job *Job, why Release) {
	if !c.Deleting && why != ByPolicyRetain {
		p.add(DeleteClaim{c.Ref(), why})
		if why == ByUnrecoverable {
			return // only the Job knows why: status has it before the Job goes
		}
	}
	if c.Finalizer {
		p.add(ReleaseClaim{c.Ref(), why})
	}
	p.deleteJob(job, "its claim is let go: "+string(why))
}

func (p *Plan) deleteJob(job *Job, reason string) {
	if job != nil && !job.Deleting {
		p.add(DeleteJob{Name: job.Name, UID: job.UID, Reason: reason})
	}
}

// cannotBeRead tells whether a drainer of this very claim said that nothing can read
// its volume.
func cannotBeRead(c *Claim, job *Job) bool {
	return job != nil && job.State == JobFailed && c.Request == NoRequest &&
		job.Receipt != nil && job.Receipt.Source == string(c.UID) && job.Receipt.ExitCode == contract.ExitUnrecoverable
}

// reasonToRelease is the first reason by which the claim of a departed member goes, if there
// is one.
func reasonToRelease(o *Observed, c *Claim) (Release, bool) {
	for _, why := range []Release{ByReceipt, BySkip, ByPolicyDelete, ByPolicyRetain, NeverBound, ByUnrecoverable} {
		if releasableBy(&o.Cluster, c, why) == nil && (why != ByUnrecoverable || cannotBeRead(c, o.jobFor(c.UID))) {
			return why, true
		}
	}
	return "", false
}

// releasableBy is invariant 1: a claim goes by a complete receipt for exactly this claim, or
// because a person said so. It returns why this is no reason. The plan asks, and MayRelease
// of what is live.
func releasableBy(cluster *Cluster, c *Claim, why Release) error {
	switch why {
	case ByReceipt:
		if c.Receipt == nil {
			return fmt.Errorf("claim %s has no receipt", c.Name)
		}
		return c.Receipt.AddsUp(string(c.UID))
	case BySkip:
		return unless(c.Request == Skip, "claim %s is not annotated with a skip", c.Name)
	case NeverBound:
		return unless(c.Volume == "", "claim %s is bound to a volume", c.Name)
	case ByNamespace:
		return unless(cluster.NamespaceTerminating, "the namespace of claim %s is not terminating", c.Name)
	case ByClusterDeletion:
		return unless(cluster.Deleting, "the Memcached is not deleted")
	case ByUnrecoverable:
		return unless(cluster.ReleaseUnreadable && !c.Adopted, "the Memcached keeps volumes that can't be read")
	case ByPolicyDelete:
		return unless(cluster.Policy == Delete && !c.Adopted, "the Memcached does not say that claim %s may go (%s)", c.Name, why)
	case ByPolicyRetain:
		// What the operator did not make, nobody has drained: it is kept.
		return unless(cluster.Policy == Retain || cluster.Policy == Delete && c.Adopted, "the Memcached does not say that claim %s may go (%s)", c.Name, why)
	case BySetAside: // MayHandOver has the word
	}
	return fmt.Errorf("%s is no reason to release claim %s", why, c.Name)
}
