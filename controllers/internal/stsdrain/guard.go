package stsdrain

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// A cache may be stale. So a step that can't be undone is decided once more, on state that was read live
// right before it. Claims has at least all claims of the unit, as they were read.

// unit is the unit of the claim, in the live state; nil if the claim is gone.
func (o *Observed) unit(uid types.UID) (*Observed, *claims.Claim) {
	live := o.having(o.Claims)
	return live, claims.UnitOf(live.Claims, uid)
}

// MayDrain is asked before a drain begins: its member has left, nothing uses its volumes, the survivors are
// ready, and they are those that the Job is made for. MayDrain needs Drain, Set, Ready, Jobs, the unit's
// claims, its member's pod and the drainers' pods that mount them.
func MayDrain(live *Observed, a action.CreateDrain) error {
	o, c := live.unit(a.Claim.UID)
	if err := claims.MayDrain(&o.Facts, c, a.Claim, o.Drain.Parallelism); err != nil {
		return err
	}
	named := map[types.UID]bool{a.Claim.UID: true}
	for _, ref := range a.With {
		named[ref.UID] = true
	}
	of := o.Unit(c.UID)
	for i := range of {
		if !named[of[i].UID] || len(of) != len(named) {
			return fmt.Errorf("other claims are drained together with %s now", a.Claim.Name)
		}
	}
	if why := o.nothingDeparts(); why != "" {
		return errors.New(why)
	}
	if a.Survivors != o.wanted() {
		return fmt.Errorf("StatefulSet %s is to have other members now", o.Set.Name)
	}
	if _, message := o.drainWaits(c); message != "" {
		return errors.New(message)
	}
	return nil
}

// MaySetAside is asked before a claim is deleted so that its volume is set aside, after which there is no way
// back: its member is not wanted, and has no pod. When one claim of the unit is deleted, the others follow.
// MaySetAside needs Set, Jobs, the unit's claims with Where, and the member's pod.
func MaySetAside(live *Observed, claim types.UID) error {
	o, c := live.unit(claim)
	switch {
	case c == nil:
		return errors.New("the claim is gone")
	case c.Deleting:
		return nil
	case o.nothingDeparts() != "":
		return errors.New(o.nothingDeparts())
	case o.wanted().Has(c.Ordinal):
		return fmt.Errorf("member %d is wanted again", c.Ordinal)
	case o.MemberExists(c):
		return fmt.Errorf("the pod of member %d is still there", c.Ordinal)
	}
	return claims.MaySetAside(&o.Facts, c)
}

// MayProtect is asked before a claim is protected: its member is wanted, or it was protected before, or
// another claim of its member was, or a person asks for its drain, or it has a departed member's volume.
// MayProtect needs Set and Claims.
func MayProtect(live *Observed, c *claims.Claim) error {
	switch {
	case c.Unnoted && !live.wanted().Has(c.Ordinal):
		return fmt.Errorf("a backup has brought claim %s back, and that is not noted on it yet", c.Name)
	case c.Aside:
		return nil
	case c.Deleting:
		return fmt.Errorf("claim %s is being deleted", c.Name)
	case !c.LeavingSince.IsZero():
		return nil
	case live.wanted().Has(c.Ordinal) || c.Protected || c.Request == claims.Retry || live.protectedBeside(c):
		return nil
	}
	return fmt.Errorf("member %d is not wanted", c.Ordinal)
}

// MayMark is asked before a claim gets the leaving mark: its member is not wanted, or does not use it, and
// others can take its data, or the claim is being deleted. MayMark needs Set.
func MayMark(live *Observed, c *claims.Claim) error {
	switch wanted := live.wanted(); {
	case c.Deleting:
		return nil
	case !c.Aside && wanted.Has(c.Ordinal):
		return fmt.Errorf("member %d is wanted", c.Ordinal)
	case live.nothingDeparts() != "":
		return errors.New(live.nothingDeparts())
	}
	return nil
}

// MayUnmark is asked before the leaving mark is taken off: the member is wanted again, and no drain uses its
// volumes. MayUnmark needs Set, Jobs, ClaimsWithDrainerPod and the unit's claims.
func MayUnmark(live *Observed, claim types.UID) error {
	o, c := live.unit(claim)
	switch {
	case c == nil:
		return errors.New("the claim is gone")
	case !o.wanted().Has(c.Ordinal):
		return fmt.Errorf("member %d is not wanted", c.Ordinal)
	}
	return claims.MayUnmark(&o.Facts, c)
}

// MayHandOver is claims.MayHandOver about the unit: all its volumes are bound again. MayHandOver needs all
// claims.
func MayHandOver(live *Observed, claim types.UID) error {
	o, c := live.unit(claim)
	if c == nil {
		return errors.New("the claim is gone")
	}
	return claims.MayHandOver(&o.Facts, c, "")
}

// Uses tells whether a member that is wanted, or that runs, uses the claim again, or may have done so after
// its drain (claims.MayRelease). Uses needs Set and the member's pod.
func Uses(live *Observed, c *claims.Claim) bool {
	changed := c.Receipt != nil && live.changedSince(c, c.Receipt.SetVersion)
	return !c.Aside && (live.wanted().Has(c.Ordinal) || live.MemberExists(c) || changed)
}
