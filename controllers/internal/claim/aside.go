package claim

import "fmt"

// CanBeSetAside tells whether the volume can still be given to another claim.
func (c *Claim) CanBeSetAside() bool { return c.Finalizer && (c.Where == Here || c.Where == Reserved) }

// WhyNotSetAside says why the volume can't be given to another claim.
func (c *Claim) WhyNotSetAside() string {
	switch c.Where {
	case Gone:
		return "its volume " + c.Volume + " is gone"
	case Elsewhere, Reserved:
		return "its volume " + c.Volume + " was bound to another claim"
	case NotLookedAt, Forbidden, Here, Promised:
	}
	return "the operator has no right to set its volume " + c.Volume + " aside"
}

// HandsOver tells whether the claim can only be released after its volume was handed over to the
// aside claim. Until the aside claim has the volume, a person can still skip its drain.
func (c *Claim) HandsOver(aside *Claim) bool {
	return aside != nil && (!aside.Pending || c.Request != Skip)
}

// HasVolumeToHandOver tells whether the claim is being deleted and still has a volume.
func (c *Claim) HasVolumeToHandOver() bool {
	return c.Deleting && c.Finalizer && c.Volume != "" && c.Where != Gone
}

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
