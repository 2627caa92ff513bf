package claims

import (
	"fmt"

	"example.com/memcached-operator/controllers/internal/action"
)

// ReleasableBy guards invariant 1: a claim is released by a receipt that adds up, for exactly this
// claim, or because a person says so. ReleasableBy returns why the reason doesn't hold. The plan
// asks this, and MayRelease asks it about live state.
func ReleasableBy(t *Terms, c *Claim, why action.Release) error {
	switch why {
	case action.ByReceipt:
		if c.Receipt == nil {
			return fmt.Errorf("claim %s has no receipt", c.Name)
		}
		return c.Receipt.AddsUp(c.sources()...)
	case action.BySkip:
		return unless(c.Request == Skip, "claim %s is not annotated with a skip", c.Name)
	case action.NeverBound:
		if c.Restored && !c.Deleting {
			return fmt.Errorf("a backup has brought claim %s back, and may fill its volume when a pod mounts it", c.Name)
		}
		return unless(c.Volume == "", "claim %s is bound to a volume", c.Name)
	case action.ByNamespace:
		return unless(t.NamespaceTerminating, "the namespace of claim %s is not terminating", c.Name)
	case action.ByOwnerDeletion:
		return unless(t.Deleting, "%s is not deleted", t.Names.owner())
	case action.ByStatefulSet:
		return unless(t.SetGone && c.OwnedBySet && c.Deleting, "claim %s does not go with its StatefulSet", c.Name)
	case action.ByUnrecoverable:
		return unless(t.releasesUnreadable(c) && !c.Adopted, "%s keeps volumes that can't be read", t.Names.owner())
	case action.ByPolicyDelete:
		return unless(t.PolicyFor(c) == Delete && !c.Adopted, "%s does not allow to release claim %s (%s)", t.Names.owner(), c.Name, why)
	case action.ByPolicyRetain:
		// The operator did not create an adopted claim, and no drain has read it, so the claim is
		// kept.
		return unless(t.PolicyFor(c) == Retain || t.PolicyFor(c) == Delete && c.Adopted, "%s does not allow to release claim %s (%s)", t.Names.owner(), c.Name, why)
	case action.BySetAside: // MayHandOver decides
	}
	return fmt.Errorf("%s is no reason to release claim %s", why, c.Name)
}

// reasonToRelease returns the first reason that releases the claim of a leaving or
// departed member, if there is one.
func (f *Facts) reasonToRelease(t *Terms, c *Claim) (action.Release, bool) {
	for _, why := range []action.Release{action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain, action.NeverBound, action.ByUnrecoverable} {
		if ReleasableBy(t, c, why) == nil && (why != action.ByUnrecoverable || MayReleaseUnreadable(f, c) == nil) {
			return why, true
		}
	}
	return "", false
}

// MayReleaseUnreadable is asked, after MayRelease, about a claim whose volume no drain can read: a drainer of
// exactly this claim has found that. MayReleaseUnreadable needs Jobs, with the receipts of their pods.
func MayReleaseUnreadable(live *Facts, c *Claim) error {
	job := live.JobOf(c.UID)
	return unless(job != nil && job.State == JobFailed && c.Request == NoRequest &&
		job.Receipt != nil && job.Receipt.Source == string(c.UID) && job.Receipt.Unreadable,
		"no drainer found that claim %s can't be read", c.Name)
}

// MayRelease is asked right before the claim is deleted, and right before its finalizer is removed.
// The reason must hold (ReleasableBy), and a policy applies only to the claim of a departed member.
// returned: a member that is wanted, or that runs, uses the claim again. MayRelease needs the Terms
// that the reason is about and, if the claim is being deleted, Where.
func MayRelease(live *Terms, c *Claim, why action.Release, returned bool) error {
	if returned && !c.Aside && !c.Deleting && why != action.ByOwnerDeletion && why != action.ByNamespace {
		return fmt.Errorf("member %d uses claim %s again", c.Ordinal, c.Name)
	}
	switch why {
	case action.ByPolicyDelete, action.ByPolicyRetain, action.ByUnrecoverable:
		switch {
		case live.Deleting:
			return fmt.Errorf("%s is gone", live.Names.owner())
		case c.LeavingSince.IsZero():
			return fmt.Errorf("claim %s is a member's", c.Name)
		case why == action.ByPolicyRetain && c.Deleting && c.Finalizer && c.Volume != "" && (c.Where == NotLookedAt || c.Where == Promised || c.CanBeSetAside()):
			return fmt.Errorf("the volume of claim %s is kept by another claim first", c.Name)
		}
	}
	return ReleasableBy(live, c, why)
}

// MayDelete is asked, after MayRelease, before a claim is deleted. A claim that existed before its
// member and that was not drained is only deleted if a person says so.
func MayDelete(c *Claim, why action.Release) error {
	return unless(!c.Adopted || why == action.ByReceipt || why == action.BySkip || why == action.NeverBound,
		"claim %s was there before its member, and no drain has read it", c.Name)
}

// MayRemoveOwnerFinalizer is asked before the cluster's own finalizer is removed, because from then on the
// operator no longer looks after the claims. MayRemoveOwnerFinalizer needs Claims.
func MayRemoveOwnerFinalizer(live *Facts) error {
	for i := range live.Claims {
		if c := &live.Claims[i]; c.Finalizer {
			return fmt.Errorf("claim %s still has the finalizer", c.Name)
		}
	}
	return nil
}

// MayGrow is asked about the live claim before it asks for a larger volume.
func MayGrow(c *Claim, size int64) error {
	return unless(c.Small(size) && c.Asked < size, "claim %s does not have to grow", c.Name)
}

// release plans the last steps. If the operator dies in between, the next plan finds each step done
// or not done. The claim comes first: if the live check refuses the reason that the cache gave, the
// Job and its log stay.
func (d *decision) release(why action.Release) {
	deletes := false
	d.each(d.c, func(c *Claim, ref action.ClaimRef) {
		if !c.Deleting && why != action.ByPolicyRetain {
			d.Do(action.DeleteClaim{Claim: ref, Why: why})
			deletes = true
		}
	})
	if deletes && why == action.ByUnrecoverable {
		return // only the Job has the reason, and status needs it once more
	}
	d.each(d.c, func(c *Claim, ref action.ClaimRef) {
		if c.Finalizer {
			d.Do(action.ReleaseClaim{Claim: ref, Why: why})
		}
	})
	if d.job != nil && d.job.PodEnds && why == action.ByReceipt {
		return // the pod's end starts the next reconcile
	}
	d.DeleteJob(d.job, "its claim is released: "+string(why))
}
