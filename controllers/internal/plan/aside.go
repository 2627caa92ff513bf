package plan

import (
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
)

// A claim is being deleted, and our finalizer keeps it. Its volume is set aside in these steps, and
// the next plan finds each step done or not done:
//
//	no pod uses the claim ──▶ ReserveVolume: the volume waits for a claim of another name
//	                      ──▶ CreateAside: that claim; Kubernetes binds the two
//	                      ──▶ ReleaseClaim: the old claim goes
//
// At any time the volume names one of the two claims, and the one that it is bound to
// exists. So its reclaim policy never applies.

// setAsideDeleted sets aside the volume of a claim that was deleted before its drain.
func (p *Plan) setAsideDeleted(o *Observed, c *claim.Claim, job *Job) (DrainPhase, string, string) {
	if aside := o.asideOf(c); aside != nil {
		return p.handOver(o, c, aside)
	}
	switch c.Where {
	case claim.NotLookedAt, claim.Forbidden:
		return Failed, ClaimDeleted, fmt.Sprintf("it was deleted before its drain, so nothing can mount it any more, and the operator has no right "+
			"to set its volume aside: when no pod uses the claim, an administrator can reserve volume %s for claim %s "+
			"(docs/runbook.md, ClaimDeleted); or %s", c.Volume, c.AsideName, orSkip)
	case claim.Gone:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is gone: " + orSkip
	case claim.Elsewhere:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is bound to another claim, or to none: " + orSkip
	case claim.Promised:
		return Waiting, SettingAside, fmt.Sprintf("it was deleted while it takes over volume %s, which is set aside once more then", c.Volume)
	case claim.Here, claim.Reserved:
	}
	// Even a pod that has ended keeps the claim in use.
	p.deleteJob(job, "its claim was deleted: the volume is set aside")
	if claim.MayReserve(c) != nil {
		return Waiting, SettingAside, "it was deleted; when no pod uses it any more, its volume is set aside, and drained from there"
	}
	p.add(action.ReserveVolume{Claim: c.Ref(), Volume: c.Volume, To: c.AsideName}, action.CreateAside{Claim: c.Ref(), Volume: c.Volume, To: c.AsideName, StoredBy: o.storedBy(c)})
	return Waiting, SettingAside, "it was deleted; its volume is being set aside, to be drained from there"
}

const orSkip = "annotate the claim with cache.example.com/drain=skip to give its items up"

// handOver releases the claim as soon as the volume is bound to the claim that takes it over. Until
// then both claims wait. aside is nil for the claim that takes over.
func (p *Plan) handOver(o *Observed, c, aside *claim.Claim) (DrainPhase, string, string) {
	switch {
	case aside == nil:
		return Waiting, SettingAside, fmt.Sprintf("it takes over volume %s", c.Volume)
	case MayHandOver(o, c) == nil:
		p.add(action.ReleaseClaim{Claim: c.Ref(), Why: action.BySetAside})
	case c.LeavingSince.IsZero() && o.movesNow() != "":
		return Waiting, SettingAside, fmt.Sprintf("claim %s takes over its volume when %s has ended, which may bring older items to its member", aside.Name, o.movesNow())
	}
	return Waiting, SettingAside, "claim " + aside.Name + " takes over its volume"
}

// skipAside applies a person's skip to the claim that was to take over the volume, because that
// claim would wait for the volume forever. The aside claim is released first.
func (p *Plan) skipAside(o *Observed, aside *claim.Claim) (DrainPhase, string, string) {
	if aside.Request != claim.Skip && MaySkipAside(o, aside) == nil {
		p.add(action.SkipAside{Claim: aside.Ref()})
	}
	return Waiting, SettingAside, "claim " + aside.Name + ", which was to take over its volume, is released first"
}

// setAsideForReturn sets a volume aside if its drain waits for a person and its member is to
// return, because the member needs the claim's name.
func (p *Plan) setAsideForReturn(o *Observed, s DrainState) DrainState {
	c := &s.Claim
	waits := s.Phase == Failed || s.Phase == Held
	if !waits || c.Aside || c.Deleting || c.Ordinal >= o.Cluster.Size || MaySetAside(o, c) != nil {
		return s
	}
	p.add(action.SetAside{Claim: c.Ref()})
	return s.is(Waiting, SettingAside, "its volume is being set aside: its member is to return")
}

// retainedInTheWay tells whether a retained claim keeps its member from returning.
func (o *Observed) retainedInTheWay(c *claim.Claim) bool {
	return !c.Aside && !c.Deleting && c.Ordinal < o.Cluster.Size
}

// setAsideRetained keeps a departed member's volume under another name, because the
// member needs the claim's own name to return. Retained claims have no finalizer; this
// one gets it until its volume is set aside.
func (p *Plan) setAsideRetained(c *claim.Claim, job *Job, s DrainState) DrainState {
	switch {
	case c.Volume == "":
		p.release(c, job, action.NeverBound)
		s.Why = action.NeverBound
		return s.is(Releasing, "", "")
	case c.Where != claim.Here:
		return s.is(Failed, InTheWay, fmt.Sprintf("spec.drain.policy Retain keeps it, and member %d can't return before it is gone: %s; "+
			"delete the claim when you have taken what you need from it, or set spec.drain.policy to Drain", c.Ordinal, c.WhyNotSetAside()))
	case job != nil:
		p.deleteJob(job, "its claim is kept, and set aside")
		return s.is(Waiting, SettingAside, "its volume is set aside when its drainer is gone")
	case !c.Finalizer:
		p.add(action.AddClaimFinalizer{Claim: c.Ref()})
	}
	p.add(action.SetAside{Claim: c.Ref()})
	return s.is(Waiting, SettingAside, "its volume is kept by another claim: its member is to return")
}

// returnVolume binds a reserved volume to its first claim again when that claim is released, unless
// the other claim has the volume already. Without this the volume would stay reserved forever.
func (p *Plan) returnVolume(o *Observed, c *claim.Claim) {
	if aside := o.asideOf(c); claim.MayReturn(c, aside != nil && !aside.Pending) == nil {
		p.add(action.ReturnVolume{Claim: c.Ref(), Volume: c.Volume, From: c.AsideName})
	}
}

// asideOf returns the claim that takes over the volume of a claim that is being deleted, or nil. An
// aside claim that was deleted itself counts as long as it has the volume.
func (o *Observed) asideOf(c *claim.Claim) *claim.Claim {
	if !c.HasVolumeToHandOver() {
		return nil
	}
	var found *claim.Claim
	for i := range o.Claims {
		a := &o.Claims[i]
		if !a.Aside || a.Volume != c.Volume || a.UID == c.UID || a.Deleting && a.Where != claim.Here || a.Pending && a.Name != c.AsideName {
			continue
		}
		if found == nil || found.Deleting {
			found = a
		}
	}
	return found
}

// takesOver tells whether the claim takes over a volume whose first claim is not released yet.
// Until then the aside claim stays. If a person skips the aside claim before it has the volume, it
// still waits while the volume is reserved for it, because the first claim could hand the volume to
// no other claim. It doesn't wait if the first claim was skipped, too.
func (o *Observed) takesOver(c *claim.Claim) bool {
	return c.Aside && !c.Deleting && slices.ContainsFunc(o.Claims, func(other claim.Claim) bool {
		givenUp := c.Pending && c.Request == claim.Skip && (other.Request == claim.Skip || other.Where != claim.Reserved)
		return !givenUp && other.HasVolumeToHandOver() && other.Volume == c.Volume && other.UID != c.UID
	})
}

// stranded tells whether the claim waits for a volume that no claim will ever hand over. A bound
// claim that lost its volume looks the same.
func (o *Observed) stranded(c *claim.Claim) bool {
	return c.Aside && c.Pending && !o.takesOver(c)
}

// pendingAsideOf returns the claim that is to take over the volume of a claim that is being
// deleted, and doesn't have the volume yet; or nil.
func (o *Observed) pendingAsideOf(c *claim.Claim) *claim.Claim {
	i := slices.IndexFunc(o.Claims, func(a claim.Claim) bool { return a.Aside && a.Pending && a.Name == c.AsideName && a.Volume == c.Volume })
	if i < 0 {
		return nil
	}
	return &o.Claims[i]
}

// drainContinues tells whether the claim's drain continues although the claim is being deleted: a
// running drainer keeps its mount, and a drainer that succeeded has left its receipt.
func (o *Observed) drainContinues(c *claim.Claim, job *Job) bool {
	switch {
	case job == nil:
		return false
	case job.State == JobActive || job.Deleting:
		return o.drainerAtWork(c.UID)
	}
	return job.State == JobComplete && checkReceipt(job, c) == nil
}
