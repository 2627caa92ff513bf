package plan

import (
	"errors"
	"fmt"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/drainer/contract"
)

// cannotBeRead tells whether a drainer of exactly this claim found that nothing can read
// its volume.
func cannotBeRead(c *Claim, job *Job) bool {
	return job != nil && job.State == JobFailed && c.Request == NoRequest &&
		job.Receipt != nil && job.Receipt.Source == string(c.UID) && job.Receipt.ExitCode == contract.ExitUnrecoverable
}

// reasonToRelease returns the first reason that releases the claim of a leaving or
// departed member, if there is one.
func reasonToRelease(o *Observed, c *Claim) (action.Release, bool) {
	for _, why := range []action.Release{action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain, action.NeverBound, action.ByUnrecoverable} {
		if releasableBy(&o.Cluster, c, why) == nil && (why != action.ByUnrecoverable || cannotBeRead(c, o.jobFor(c.UID))) {
			return why, true
		}
	}
	return "", false
}

// releasableBy is invariant 1: a claim is released by a receipt that adds up, for exactly
// this claim, or by a person's word. It returns why this reason doesn't hold. The plan
// asks this, and MayRelease asks it about live state.
func releasableBy(cluster *Cluster, c *Claim, why action.Release) error {
	switch why {
	case action.ByReceipt:
		if c.Receipt == nil {
			return fmt.Errorf("claim %s has no receipt", c.Name)
		}
		return c.Receipt.AddsUp(string(c.UID))
	case action.BySkip:
		return unless(c.Request == Skip, "claim %s is not annotated with a skip", c.Name)
	case action.NeverBound:
		return unless(c.Volume == "", "claim %s is bound to a volume", c.Name)
	case action.ByNamespace:
		return unless(cluster.NamespaceTerminating, "the namespace of claim %s is not terminating", c.Name)
	case action.ByClusterDeletion:
		return unless(cluster.Deleting, "the Memcached is not deleted")
	case action.ByUnrecoverable:
		return unless(cluster.ReleaseUnreadable && !c.Adopted, "the Memcached keeps volumes that can't be read")
	case action.ByPolicyDelete:
		return unless(cluster.Policy == Delete && !c.Adopted, "the Memcached does not allow to release claim %s (%s)", c.Name, why)
	case action.ByPolicyRetain:
		// The operator did not create an adopted claim, and nobody has drained it: it is kept.
		return unless(cluster.Policy == Retain || cluster.Policy == Delete && c.Adopted, "the Memcached does not allow to release claim %s (%s)", c.Name, why)
	case action.BySetAside: // MayHandOver decides
	}
	return fmt.Errorf("%s is no reason to release claim %s", why, c.Name)
}

// MayRelease is asked right before the claim is deleted, and right before its finalizer
// is removed. The reason must hold (releasableBy), and a policy applies only to the claim
// of a member that left. It needs the parts of the Cluster that the reason is about, and,
// if the claim is being deleted, where its volume is.
func MayRelease(live *Cluster, c *Claim, why action.Release) error {
	switch why {
	case action.ByPolicyDelete, action.ByPolicyRetain, action.ByUnrecoverable:
		switch {
		case live.Deleting:
			return errors.New("the Memcached is gone")
		case c.LeavingSince.IsZero():
			return fmt.Errorf("claim %s is a member's", c.Name)
		case why == action.ByPolicyRetain && c.Deleting && c.Finalizer && c.Volume != "" && (c.Where == NotLookedAt || c.canBeSetAside()):
			return fmt.Errorf("the volume of claim %s is kept by another claim first", c.Name)
		}
	}
	return releasableBy(live, c, why)
}

// MayDelete is asked, after MayRelease, before a claim is deleted. A claim that was there
// before its member, and that nobody has drained, goes only by a person's word.
func MayDelete(c *Claim, why action.Release) error {
	return unless(!c.Adopted || why == action.ByReceipt || why == action.BySkip || why == action.NeverBound,
		"claim %s was there before its member, and nobody has drained it", c.Name)
}

// MayReleaseUnreadable is asked, after MayRelease, about a claim that no drain can read.
// It needs Jobs, with the receipts of their pods.
func MayReleaseUnreadable(live *Observed, c *Claim) error {
	return unless(cannotBeRead(c, live.jobFor(c.UID)), "no drainer found that claim %s can't be read", c.Name)
}
