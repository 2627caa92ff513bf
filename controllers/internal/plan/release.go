package plan

import (
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
	"example.com/memcached-operator/drainer/contract"
)

// cannotBeRead tells whether a drainer of exactly this claim found that nothing can read
// its volume.
func cannotBeRead(c *claim.Claim, job *Job) bool {
	return job != nil && job.State == JobFailed && c.Request == claim.NoRequest &&
		job.Receipt != nil && job.Receipt.Source == string(c.UID) && job.Receipt.ExitCode == contract.ExitUnrecoverable
}

// reasonToRelease returns the first reason that releases the claim of a leaving or
// departed member, if there is one.
func reasonToRelease(o *Observed, c *claim.Claim) (action.Release, bool) {
	for _, why := range []action.Release{action.ByReceipt, action.BySkip, action.ByPolicyDelete, action.ByPolicyRetain, action.NeverBound, action.ByUnrecoverable} {
		if claim.ReleasableBy(o.Cluster.Terms(), c, why) == nil && (why != action.ByUnrecoverable || cannotBeRead(c, o.jobFor(c.UID))) {
			return why, true
		}
	}
	return "", false
}

// MayReleaseUnreadable is asked, after MayRelease, about a claim whose volume no drain can read. It
// needs Jobs, with the receipts of their pods.
func MayReleaseUnreadable(live *Observed, c *claim.Claim) error {
	return unless(cannotBeRead(c, live.jobFor(c.UID)), "no drainer found that claim %s can't be read", c.Name)
}
