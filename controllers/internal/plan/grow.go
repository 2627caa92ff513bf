package plan

import "example.com/memcached-operator/controllers/internal/action"

// A volume grows when its claim asks for more. The StatefulSet's claim template can't
// change, so a member that joins later begins with the first size, and its volume grows
// as the others did.

// A volume never shrinks, and spec.memory can be mistyped. So a volume size that only follows
// memory waits until one member is ready with that memory. If the memory doesn't fit on the present
// volumes, no member can run with it, and spec.storage.size has to give the size.

// findSmall finds the volumes that have to grow. While one is too small for the new
// memory, the members' pods stay as they are.
func (p *Plan) findSmall(o *Observed) {
	for i := range o.Claims {
		if c := &o.Claims[i]; c.Small(o.Cluster.VolumeSize) {
			p.SmallClaims = append(p.SmallClaims, c.Ref())
			p.KeepsTemplate = p.KeepsTemplate || c.Capacity <= o.Cluster.Memory
			p.GrowthWaits = !o.Cluster.VolumeSizeGiven && !o.MemoryRuns
		}
	}
}

// grow comes last, so that a volume that can't grow delays nothing else.
func (p *Plan) grow(o *Observed) {
	for i := range o.Claims {
		if c := &o.Claims[i]; !p.GrowthWaits && c.Small(o.Cluster.VolumeSize) && c.Asked < o.Cluster.VolumeSize {
			p.add(action.GrowClaim{Claim: c.Ref(), Size: o.Cluster.VolumeSize})
		}
	}
}
