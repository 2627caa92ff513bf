package claims

import (
	"fmt"
	"slices"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

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
		if d.job == nil && s.Phase == Draining {
			slots--
		}
		w.Then(d.Work)
	}
	return v, w
}

// member decides about the claim of a member that stays. If the claim was deleted, its volume is
// set aside when the pod is gone. deleted says how a deleted claim stands.
func (d *decision) member() (deleted string) {
	c, aside := d.c, d.AsideOf(d.c)
	switch {
	case c.Deleting && !c.Finalizer && c.InUse && c.Volume != "" && c.Request != Skip && d.Wanted.Has(c.Ordinal):
		return fmt.Sprintf("it was deleted without the operator's finalizer, which can't be added any more: when its member's pod ends, it goes, and "+
			"volume %s by its reclaim policy; set that policy to Retain first, or %s", c.Volume, d.orSkip())
	case !c.Deleting || !c.Finalizer:
		return ""
	case c.Request == Skip && aside != nil && !c.HandsOver(aside):
		_, _, deleted = d.skipAside(aside)
	case c.Request == Skip && !c.HandsOver(aside):
		d.ReturnVolume(d.Facts, c)
		d.releaseEach(c, action.BySkip)
	case c.Volume == "":
		d.releaseEach(c, action.NeverBound)
	default:
		_, _, deleted = d.setAsideDeleted()
	}
	if len(d.Actions) > 0 {
		if o, is := d.Withdraw(d.Facts, c); is {
			return "it was deleted, and " + o.Message
		}
	}
	return deleted
}

// departed decides about the claim of a leaving or departed member.
func (d *decision) departed(slots int) DrainState {
	s := d.drain(slots)
	if len(d.Actions) > 0 || s.Phase == Waiting {
		if o, is := d.Withdraw(d.Facts, d.c); is {
			s.RetryAt, s.Why = o.RetryAt, ""
			s = s.is(o.Phase, o.Reason, o.Message)
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
	case why == action.BySkip && d.skipFirst():
		return state.is(Waiting, SettingAside, "the claim that it took its volume from is given up, too")
	case release && d.MemberExists(c):
		return state.is(d.shutsDown())
	case why == action.ByPolicyRetain && !c.Aside && !c.Deleting && d.keepsMemberAway(c):
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
		return state.is(Failed, ClaimDeleted, fmt.Sprintf("it was to take over volume %s, which is gone, or bound to another claim: %s", c.Volume, d.orSkip()))
	case d.job != nil:
		return d.follow(state)
	}
	return d.begin(state, slots)
}

func (d *decision) shutsDown() (phase DrainPhase, reason, message string) {
	return Waiting, PodPresent, d.ShutsDown(d.c.Ordinal)
}

// begin starts the drain of a claim that has no Job, as soon as nothing forbids it.
func (d *decision) begin(state DrainState, slots int) DrainState {
	c := d.c
	lacks := ""
	d.each(c, func(c *Claim, _ action.ClaimRef) {
		if !c.Finalizer {
			lacks = fmt.Sprintf("claim %s lacks the finalizer: the drain starts when the API server takes it", c.Name)
			if why, is := d.RefusedNow(c); is {
				lacks += ", which it refused: " + why.Why
			}
		}
	})
	if lacks != "" { // as MayDrain
		return state.is(Waiting, Refused, lacks)
	}
	d.Do(d.clearRetry(c)...) // the drain is about to start anyway
	switch {
	case c.Request == Hold && c.Restored:
		d.noteRestored(c)
		return state.is(Held, HeldByRequest, "a backup has brought it back, so its data may be old: annotate it with "+cachev1alpha1.AnnotationDrain+"=retry to drain it, "+
			"or =skip to give its "+d.Names.data()+" up")
	case c.Request == Hold:
		return state.is(Held, HeldByRequest, "remove the annotation "+cachev1alpha1.AnnotationDrain+"=hold to start the drain")
	case d.MemberExists(c):
		return state.is(d.shutsDown())
	case d.Survivors.Count == 0:
		return state.is(Waiting, Hibernating, d.Names.noSurvivors()+": the drain starts when members return")
	case d.AsideFirst && !c.Aside && c.Where == NotLookedAt: // the mark is new
		return state.is(Waiting, SettingAside, "its volume is looked for, to be set aside")
	case d.AsideFirst && !c.Aside && MaySetAside(d.Facts, c) == nil:
		d.setAside(c)
		return state.is(Waiting, SettingAside, "its volume is being set aside, to be drained from there")
	case slots <= 0:
		return state.is(Waiting, InTurn, "another drain is under way")
	}
	if reason, message := d.Waits(c); reason != "" {
		d.WakeAfter(d.Now, d.WaitsUntil)
		return state.is(Waiting, reason, message)
	}
	d.Do(action.CreateDrain{Claim: c.Ref(), With: d.others(c), Survivors: d.Survivors, NeverStarted: c.NeverStarted})
	return state.is(Draining, "", "")
}

// Unmounted tells what a drain of the claim waits for until no pod uses the volume. The reason is empty if
// the drain waits for nothing.
func (f *Facts) Unmounted(c *Claim) (reason, message string) {
	switch {
	case f.MemberExists(c):
		return PodPresent, f.ShutsDown(c.Ordinal)
	case slices.Contains(f.ClaimsWithDrainerPod, c.UID):
		return InTurn, "the pod of an earlier drain of this claim is still there"
	}
	return "", ""
}

// follow decides about a claim that has a Job.
func (d *decision) follow(state DrainState) DrainState {
	c, job := d.c, d.job
	if job.Deleting {
		return state.is(Waiting, InTurn, "an earlier Job of this drain is being deleted")
	}
	if d.WaitsForReturn != "" && job.MayRun() {
		d.DeleteJob(job, d.WaitsForReturn)
		return state.is(Waiting, InTurn, d.WaitsForReturn)
	}
	a := Attempt{What: "drain", Claim: c, Job: job, Retry: c.Request == Retry, Clear: d.clearRetry(c), WayOut: d.wayOut()}
	if job.State != JobActive {
		a.Invalid = job.drained(c)
		a.Retry = a.Retry && !c.Deleting
	}
	switch {
	case job.State == JobComplete && a.Invalid == nil:
		// The event of this write starts the next reconcile, which releases the claim. Status has
		// the receipt by then, too.
		d.Do(action.RecordReceipt{Claim: c.Ref(), Receipt: job.Receipt})
		state.Claim.Receipt, state.Why = job.Receipt, action.ByReceipt
		return state.is(Releasing, "", "")
	case c.Request == Hold && job.Retryable():
		_, message := a.failure()
		if job.PodKept {
			d.DeleteJob(job, "a person holds its claim, and the Job would go on when its pod ends")
		}
		return state.is(Held, HeldByRequest, "the last attempt failed: "+message+"; it is tried again when you remove the annotation "+cachev1alpha1.AnnotationDrain+"=hold")
	}
	o := d.Follow(d.Now, &a)
	state.RetryAt = o.RetryAt
	return state.is(o.Phase, o.Reason, o.Message)
}

func (d *decision) wayOut() string {
	return "the claim is kept: see the drainer's log, then annotate the claim with " +
		cachev1alpha1.AnnotationDrain + "=retry, or =skip to give its " + d.Names.data() + " up"
}

// clearRetry takes a person's request for a retry off each claim that has it.
func (d *decision) clearRetry(c *Claim) (clear []action.Action) {
	d.each(c, func(c *Claim, ref action.ClaimRef) {
		if c.Request == Retry {
			clear = append(clear, action.ClearRetry{Claim: ref})
		}
	})
	return clear
}

func (d *decision) releaseEach(c *Claim, why action.Release) {
	d.each(c, func(_ *Claim, ref action.ClaimRef) { d.Do(action.ReleaseClaim{Claim: ref, Why: why}) })
}

// MayDrain is asked about the live claim before its drain begins: its member has left, and no more drains run
// than allowed. c is nil if the claim is gone. MayDrain needs Jobs.
func MayDrain(live *Facts, c *Claim, ref action.ClaimRef, parallelism int32) error {
	switch {
	case c == nil || c.Deleting:
		return fmt.Errorf("claim %s is being deleted", ref.Name)
	case c.LeavingSince.IsZero():
		return fmt.Errorf("claim %s is a member's", ref.Name)
	case c.Unnoted || c.Fresh:
		return fmt.Errorf("what is written on claim %s is about another claim", ref.Name)
	case !c.Finalizer:
		return fmt.Errorf("claim %s lacks the finalizer", ref.Name)
	}
	return unless(live.Slots(parallelism) > 0, "%d drains run already", parallelism)
}
