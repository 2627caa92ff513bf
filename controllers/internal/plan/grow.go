package plan

// Volumes grow by their claims, which Kubernetes lets ask for more. The
// StatefulSet's own template of a claim can't change, so a member that joins
// later is born with the first size, and grows as the others did.

// small tells whether the volume of a member is smaller than wanted. Those of
// members that leave are as they are.
func (c *Claim) small(wanted int64) bool {
	return c.LeavingSince.IsZero() && !c.Deleting && 0 < c.Capacity && c.Capacity < wanted
}

// findSmall looks for volumes that have to grow. While one has no room for what
// the members are to hold, they stay as they are.
func (p *Plan) findSmall(o *Observed) {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.small(o.Cluster.VolumeSize) {
			p.SmallClaims = append(p.SmallClaims, c.Ref())
			p.KeepsTemplate = p.KeepsTemplate || c.Capacity <= o.Cluster.Memory
		}
	}
}

// grow comes last: a volume that can't grow holds up nothing else.
func (p *Plan) grow(o *Observed) {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.small(o.Cluster.VolumeSize) && c.Asked < o.Cluster.VolumeSize {
			p.add(GrowClaim{c.Ref(), o.Cluster.VolumeSize})
		}
	}
}

// MayGrow asks, of the live claim, whether it is to ask for more.
func MayGrow(c *Claim, size int64) error {
	return unless(c.small(size) && c.Asked < size, "claim %s is no member's that is to grow", c.Name)
}
