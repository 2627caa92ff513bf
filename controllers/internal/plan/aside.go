package plan

import (
	"fmt"
	"slices"
)

// A volume is set aside in these steps, each found done or undone by the next
// plan. The claim is being deleted, and our finalizer holds it:
//
//	no pod uses the claim ──▶ MoveVolume: the volume waits for a claim of another name
//	                      ──▶ CreateAside: that claim; Kubernetes binds the two
//	                      ──▶ ReleaseClaim: the old claim goes
//
// The volume names one of the two claims at any time, and that one is there, so
// that its reclaim policy never has a say.

// setAsideDeleted sets the volume of a claim aside that is being deleted before its drain.
func (p *Plan) setAsideDeleted(o *Observed, c *Claim, job *Job) (DrainPhase, string, string) {
	if aside := o.asideOf(c); aside != nil {
		return p.handOver(c, aside)
	}
	switch c.Where {
	case NotLookedAt, Forbidden:
		return Failed, ClaimDeleted, fmt.Sprintf("it was deleted before its drain, so nothing can mount it any more, and the operator has no right "+
			"to set its volume aside: when no pod uses the claim, an administrator lets volume %s wait for claim %s "+
			"(docs/runbook.md, ClaimDeleted); or %s", c.Volume, c.AsideName, orSkip)
	case Gone:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is gone: " + orSkip
	case Elsewhere:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is bound to another claim, or to none: " + orSkip
	case Here, Reserved:
	}
	// Its pods hold the claim, those that have ended, too.
	p.deleteJob(job, "its claim was deleted: the volume is set aside")
	if c.InUse {
		return Waiting, SettingAside, "it was deleted; when no pod uses it any more, its volume is set aside, and drained from there"
	}
	p.add(ReserveVolume{c.Ref(), c.Volume, c.AsideName}, CreateAside{c.Ref(), c.Volume, c.AsideName})
	return Waiting, SettingAside, "it was deleted; its volume is being set aside, to be drained from there"
}

const orSkip = "annotate the claim with cache.example.com/drain=skip to give its items up"

// handOver lets the claim go when the one that takes its volume over has it. Both
// wait until then; aside is nil for the latter.
func (p *Plan) handOver(c, aside *Claim) (DrainPhase, string, string) {
	switch {
	case aside == nil:
		return Waiting, SettingAside, fmt.Sprintf("it takes over volume %s", c.Volume)
	case !aside.Pending && !aside.Deleting:
		p.add(ReleaseClaim{c.Ref(), BySetAside})
	}
	return Waiting, SettingAside, "claim " + aside.Name + " takes over its volume"
}

// skipAside passes on what a person said of a claim to the one that was to take its volume
// over: that would wait for the volume for ever. It goes first.
func (p *Plan) skipAside(aside *Claim) (DrainPhase, string, string) {
	if aside.Request != Skip {
		p.add(SkipAside{aside.Ref()})
	}
	return Waiting, SettingAside, "claim " + aside.Name + ", which was to take over its volume, goes first"
}

// setAsideForReturn sets a volume aside whose drain waits for a person, where its member
// is to return: that needs the claim's name.
func (p *Plan) setAsideForReturn(o *Observed, s DrainState) DrainState {
	c := &s.Claim
	waits := s.Phase == Failed || s.Phase == Held
	if !waits || c.Aside || c.Deleting || c.Ordinal >= o.Cluster.Size || c.Where != Here {
		return s
	}
	p.add(SetAside{c.Ref()})
	return s.is(Waiting, SettingAside, "its volume is being set aside: its member is to return")
}

// retainedInTheWay tells whether policy Retain keeps a claim whose member is to return.
func (o *Observed) retainedInTheWay(c *Claim) bool {
	return !c.Aside && !c.Deleting && c.Ordinal < o.Cluster.Size
}

// setAsideRetained keeps what a member left under another name: it needs the claim's own
// to return. Kept claims are not held; this one is until its volume has moved.
func (p *Plan) setAsideRetained(c *Claim, job *Job, s DrainState) DrainState {
	switch {
	case c.Volume == "":
		p.release(c, job, NeverBound)
		s.Why = NeverBound
		return s.is(Releasing, "", "")
	case c.Where != Here:
		return s.is(Failed, InTheWay, fmt.Sprintf("spec.drain.policy Retain keeps it, and member %d can't return before it is gone: %s; "+
			"delete the claim when you have what you need of it, or let spec.drain.policy be Drain", c.Ordinal, c.whyNotSetAside()))
	case job != nil:
		p.deleteJob(job, "its claim is kept, and set aside")
		return s.is(Waiting, SettingAside, "its volume is set aside when its drainer is gone")
	case !c.Finalizer:
		p.add(AddClaimFinalizer{c.Ref()})
	}
	p.add(SetAside{c.Ref()})
	return s.is(Waiting, SettingAside, "its volume is kept by another claim: its member is to return")
}

// canBeSetAside tells whether the volume can still be given to another claim.
func (c *Claim) canBeSetAside() bool { return c.Finalizer && (c.Where == Here || c.Where == Reserved) }

// whyNotSetAside tells why the volume can't be given to another claim.
func (c *Claim) whyNotSetAside() string {
	switch c.Where {
	case Gone:
		return "its volume " + c.Volume + " is gone"
	case Elsewhere, Reserved:
		return "somebody bound its volume " + c.Volume + " to another claim"
	case NotLookedAt, Forbidden, Here:
	}
	return "the operator has no right to set its volume " + c.Volume + " aside"
}

// returnVolume gives the volume of a claim that is let go back to it, where it waits
// for one that doesn't have it: it would wait forever.
func (p *Plan) returnVolume(o *Observed, c *Claim) {
	if aside := o.asideOf(c); c.Where == Reserved && (aside == nil || aside.Pending) {
		p.add(ReturnVolume{c.Ref(), c.Volume, c.AsideName})
	}
}

// asideOf returns the claim that takes over the volume of one that is being
// deleted, or nil. It may have been deleted itself: then it counts while it has
// the volume.
func (o *Observed) asideOf(c *Claim) *Claim {
	if !c.hasVolumeToHandOver() {
		return nil
	}
	var found *Claim
	for i := range o.Claims {
		a := &o.Claims[i]
		if !a.Aside || a.Volume != c.Volume || a.UID == c.UID || a.Deleting && a.Where != Here || a.Pending && a.Name != c.AsideName {
			continue
		}
		if found == nil || found.Deleting {
			found = a
		}
	}
	return found
}

// handsOver tells whether the claim has to go by handing its volume over. A person
// can still give up what waits for that.
func (c *Claim) handsOver(aside *Claim) bool {
	return aside != nil && (!aside.Pending || c.Request != Skip)
}

// takesOver tells whether the claim takes over a volume whose claim is not let
// go yet: until then it stays. One that is given up before it has the volume doesn't.
func (o *Observed) takesOver(c *Claim) bool {
	return c.Aside && !c.Deleting && (!c.Pending || c.Request != Skip) && slices.ContainsFunc(o.Claims, func(other Claim) bool {
		return other.hasVolumeToHandOver() && other.Volume == c.Volume && other.UID != c.UID
	})
}

// stranded tells whether the claim was to take over a volume, and nobody has it to leave any
// more: the volume is gone. A claim that was bound, and lost its volume, is the same.
func (o *Observed) stranded(c *Claim) bool {
	return c.Aside && c.Pending && !o.takesOver(c)
}

// pendingAsideOf returns the claim that was made to take over the volume of one that is
// being deleted, and doesn't have it; or nil.
func (o *Observed) pendingAsideOf(c *Claim) *Claim {
	i := slices.IndexFunc(o.Claims, func(a Claim) bool { return a.Aside && a.Pending && a.Name == c.AsideName && a.Volume == c.Volume })
	if i < 0 {
		return nil
	}
	return &o.Claims[i]
}

// hasVolumeToHandOver tells whether the claim is being deleted, and has a volume to leave.
func (c *Claim) hasVolumeToHandOver() bool {
	return c.Deleting && c.Finalizer && c.Volume != "" && c.Where != Gone
}

// drainGoesOn tells whether the claim's drain goes on, although the claim is being
// deleted: a drainer that runs keeps its mount, and one that ended well has
// left its receipt.
func (o *Observed) drainGoesOn(c *Claim, job *Job) bool {
	switch {
	case job == nil:
		return false
	case job.State == JobActive || job.Deleting:
		return o.drainerAtWork(c.UID)
	}
	return job.State == JobComplete && checkReceipt(job, c) == nil
}
