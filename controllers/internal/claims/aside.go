package claims

import (
	"fmt"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
)

// A claim is being deleted, and our finalizer keeps it. Its volume is set aside in these steps, and
// the next plan finds each step done or not done:
//
//	no pod uses the claim ──▶ ReserveVolume: the volume waits for a claim of another name
//	                      ──▶ CreateAside: that claim; Kubernetes binds the two
//	                      ──▶ ReleaseClaim: the old claim goes
//
// At any time the volume names one of the two claims. If the volume is bound to that claim, the claim
// exists. So the volume's reclaim policy never applies.

// MayReserve is asked before a volume is reserved for another claim: its claim is being deleted,
// our finalizer keeps the claim, no pod uses it, and the volume is bound to no other claim.
// Kubernetes removes its own finalizer when no pod uses the claim. MayReserve needs Where.
func MayReserve(c *Claim) error {
	switch {
	case !c.Deleting:
		return fmt.Errorf("claim %s is not being deleted", c.Name)
	case !c.Finalizer:
		return fmt.Errorf("claim %s lacks the finalizer", c.Name)
	case c.InUse:
		return fmt.Errorf("claim %s is in use", c.Name)
	}
	return unless(c.Where == Here || c.Where == Reserved, "volume %s is not bound to claim %s", c.Volume, c.Name)
}

// MayReturn is asked before a reserved volume is bound to its first claim again. taken tells
// whether the claim that takes the volume over has it already. MayReturn needs Where.
func MayReturn(c *Claim, taken bool) error {
	if c.Where != Reserved {
		return fmt.Errorf("volume %s is not reserved for claim %s", c.Volume, c.AsideName)
	}
	return unless(!taken, "claim %s has volume %s", c.AsideName, c.Volume)
}

// MaySetAside is asked before a claim is deleted so that its volume is set aside: its member has left, no Job
// drains it, and the volume is bound to it. MaySetAside needs Jobs and Claim.Where.
func MaySetAside(live *Facts, c *Claim) error {
	job := live.JobOf(c.UID)
	switch {
	case c.LeavingSince.IsZero() || !c.Finalizer:
		return fmt.Errorf("claim %s is a member's, or lacks the finalizer", c.Name)
	case job != nil && (job.Running() || job.Deleting):
		return fmt.Errorf("Job %s drains claim %s", job.Name, c.Name)
	}
	return unless(c.Where == Here, "volume %s is not bound to claim %s", c.Volume, c.Name)
}

// MayHandOver guards invariant 1 for a claim whose volume was set aside: another claim with the finalizer is
// bound to that volume. MayHandOver guards invariant 11 for the member, which returns empty: no drain or move
// is at work (movesNow), because its items may be older (WaitsForReturn). MayHandOver needs Claims.
func MayHandOver(live *Facts, c *Claim, movesNow string) error {
	if movesNow != "" && c.LeavingSince.IsZero() {
		return fmt.Errorf("%s may bring older items to the member of claim %s", movesNow, c.Name)
	}
	var refused error
	live.anyOf(c, func(c *Claim) bool {
		bound := live.anyClaim(func(a *Claim) bool {
			return a.Aside && a.UID != c.UID && a.Volume == c.Volume && a.Finalizer && !a.Deleting && !a.Pending && !a.Fresh
		})
		switch {
		case live.anyClaim(c.isFirstOf):
			refused = fmt.Errorf("the marks of claim %s are not carried over yet", c.Name)
		case !bound:
			refused = fmt.Errorf("no other claim is bound to volume %s yet", c.Volume)
		case !c.Deleting:
			refused = fmt.Errorf("claim %s is not being deleted", c.Name)
		}
		return refused != nil
	})
	return refused
}

// MaySkipToo is asked before a claim of a hand-over is annotated with a skip: a person has skipped the
// other claim, which has the volume and is being deleted. live needs Claims.
func MaySkipToo(live *Facts, c *Claim) error {
	given := live.anyClaim(func(s *Claim) bool {
		hands := c.Aside && c.Pending || c.HasVolumeToHandOver() && s.Aside && !s.Pending
		return hands && s.UID != c.UID && s.Volume == c.Volume && s.Deleting && s.Request == Skip
	})
	return unless(given, "no person has given up the volume of claim %s", c.Name)
}

// HandOver releases the claim as soon as the volume is bound to the claim that takes it over. Until
// then both claims wait. aside is nil for the claim that takes over. movesNow is as in Given.
func (w *Work) HandOver(f *Facts, c, aside *Claim, movesNow string) (DrainPhase, string, string) {
	w.carryOver(f, c)
	switch {
	case aside == nil:
		return Waiting, SettingAside, fmt.Sprintf("it takes over volume %s", c.Volume)
	case MayHandOver(f, c, movesNow) == nil:
		f.each(c, func(_ *Claim, ref action.ClaimRef) { w.Do(action.ReleaseClaim{Claim: ref, Why: action.BySetAside}) })
	case c.LeavingSince.IsZero() && movesNow != "":
		return Waiting, SettingAside, fmt.Sprintf("claim %s takes over its volume when %s has ended, which may bring older items to its member", aside.Name, movesNow)
	}
	return Waiting, SettingAside, "claim " + aside.Name + " takes over its volume"
}

// ReturnVolume binds a reserved volume to its first claim again when that claim is released, unless
// the other claim has the volume already. Without this the volume would stay reserved forever.
func (w *Work) ReturnVolume(f *Facts, c *Claim) {
	f.each(c, func(c *Claim, ref action.ClaimRef) {
		if _, aside := f.takerOf(c); MayReturn(c, aside != nil && !aside.Pending) == nil {
			w.Do(action.ReturnVolume{Claim: ref, Volume: c.Volume, From: c.AsideName})
		}
	})
}

func (d *decision) orSkip() string {
	return "annotate the claim with " + cachev1alpha1.AnnotationDrain + "=skip to give its " + d.Names.data() + " up"
}

// setAside deletes the claim, and the others of its unit: from then on their volumes are set aside like
// those of claims that other clients deleted.
func (d *decision) setAside(c *Claim) {
	d.each(c, func(c *Claim, ref action.ClaimRef) {
		if !c.Deleting {
			d.Do(action.SetAside{Claim: ref})
		}
	})
}

// setAsideDeleted sets aside the volume of a claim that was deleted before its drain.
func (d *decision) setAsideDeleted() (DrainPhase, string, string) {
	c := d.c
	if aside := d.AsideOf(c); aside != nil {
		return d.HandOver(d.Facts, c, aside, d.MovesNow)
	}
	switch c.Where {
	case NotLookedAt, Forbidden:
		return Failed, ClaimDeleted, fmt.Sprintf("it was deleted before its drain, so nothing can mount it any more, and the operator has no right "+
			"to set its volume aside: when no pod uses the claim, an administrator can reserve volume %s for claim %s "+
			"(docs/runbook.md, ClaimDeleted); or %s", c.Volume, c.AsideName, d.orSkip())
	case Gone:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is gone: " + d.orSkip()
	case Elsewhere:
		return Failed, ClaimDeleted, "it was deleted before its drain, and its volume " + c.Volume + " is bound to another claim, or to none: " + d.orSkip()
	case NoneYet:
		return Failed, ClaimDeleted, "another claim of its member was deleted, and it has no volume yet: delete it, too; or " + d.orSkip()
	case Promised:
		return Waiting, SettingAside, fmt.Sprintf("it was deleted while it takes over volume %s, which is set aside once more then", c.Volume)
	case Here, Reserved:
	}
	// Even a pod that has ended keeps the claim in use.
	d.DeleteJob(d.job, "its claim was deleted: the volume is set aside")
	if d.anyOf(c, func(c *Claim) bool { return !c.Deleting }) {
		d.setAside(c)
		return Waiting, SettingAside, "another claim of its member was deleted: the volumes of all are set aside, and drained from there"
	}
	if MayReserve(c) != nil {
		return Waiting, SettingAside, "it was deleted; when no pod uses it any more, its volume is set aside, and drained from there"
	}
	d.each(c, func(c *Claim, ref action.ClaimRef) {
		if _, taker := d.takerOf(c); taker == nil {
			d.Do(action.ReserveVolume{Claim: ref, Volume: c.Volume, To: c.AsideName}, action.CreateAside{Claim: ref, Volume: c.Volume, To: c.AsideName})
		}
	})
	return Waiting, SettingAside, "it was deleted; its volume is being set aside, to be drained from there"
}

// skipAside applies a person's skip to the claim that was to take over the volume, because that
// claim would wait for the volume forever. The aside claim is released first.
func (d *decision) skipAside(aside *Claim) (DrainPhase, string, string) {
	d.each(aside, func(a *Claim, ref action.ClaimRef) {
		if a.Request != Skip && MaySkipToo(d.Facts, a) == nil {
			d.Do(action.SkipToo{Claim: ref})
		}
	})
	return Waiting, SettingAside, "claim " + aside.Name + ", which was to take over its volume, is released first"
}

// skipFirst is for an aside claim that has the volume, was deleted, and was skipped by a person. skipFirst applies
// the skip to the volume's first claim, too, which would wait for another skip. is tells whether there is one.
func (d *decision) skipFirst() (is bool) {
	d.anyOf(d.c, func(aside *Claim) bool {
		if !aside.Aside || !aside.Deleting || aside.Request != Skip {
			return false
		}
		for i := range d.Claims {
			d.each(&d.Claims[i], func(first *Claim, ref action.ClaimRef) {
				if first.UID != aside.UID && first.Volume == aside.Volume && first.Request != Skip && MaySkipToo(d.Facts, first) == nil {
					d.Do(action.SkipToo{Claim: ref})
					is = true
				}
			})
		}
		return false
	})
	return is
}

// setAsideForReturn sets a volume aside if its drain waits for a person and its member is to
// return, because the member needs the claim's name.
func (d *decision) setAsideForReturn(s DrainState) DrainState {
	c := &s.Claim
	waits := s.Phase == Failed || s.Phase == Held
	if !waits || c.Aside || c.Deleting || !d.Wanted.Has(c.Ordinal) || MaySetAside(d.Facts, c) != nil {
		return s
	}
	d.setAside(c)
	return s.is(Waiting, SettingAside, "its volume is being set aside: its member is to return")
}

// keepsMemberAway tells whether the claim can't be kept under its name: its member is to return, and
// needs the name, or Kubernetes is about to delete the claim.
func (d *decision) keepsMemberAway(c *Claim) bool { return d.Wanted.Has(c.Ordinal) || c.OwnedByPod }

// setAsideRetained keeps a departed member's volume under another name, because the
// member needs the claim's own name to return. Retained claims have no finalizer; this
// one gets it until its volume is set aside.
func (d *decision) setAsideRetained(s DrainState) DrainState {
	c := d.c
	switch {
	case c.Volume == "":
		d.release(action.NeverBound)
		s.Why = action.NeverBound
		return s.is(Releasing, "", "")
	case c.Where != Here:
		return s.is(Failed, InTheWay, fmt.Sprintf("%s Retain keeps it, and member %d can't return before it is gone: %s; "+
			"delete the claim when you have taken what you need from it, or set %s to Drain", d.Names.policy(), c.Ordinal, c.WhyNotSetAside(), d.Names.policy()))
	case d.job != nil:
		d.DeleteJob(d.job, "its claim is kept, and set aside")
		return s.is(Waiting, SettingAside, "its volume is set aside when its drainer is gone")
	}
	d.each(c, func(c *Claim, ref action.ClaimRef) {
		if !c.Finalizer {
			d.Do(action.AddClaimFinalizer{Claim: ref})
		}
	})
	d.setAside(c)
	if !d.Wanted.Has(c.Ordinal) {
		return s.is(Waiting, SettingAside, "its volume is kept by another claim: Kubernetes deletes this one with its member's pod")
	}
	return s.is(Waiting, SettingAside, "its volume is kept by another claim: its member is to return")
}
