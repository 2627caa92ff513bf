package plan

import (
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// A volume grows when its claim asks for more. The StatefulSet's claim template can't
// change, so a member that joins later begins with the first size, and its volume grows
// as the others did.

// A volume never shrinks, and spec.memory can be mistyped. So a volume size that only follows
// memory waits until one member is ready with that memory. If the memory doesn't fit on the present
// volumes, no member can run with it, and spec.storage.size has to give the size.

// Growth is which volumes have to grow.
type Growth struct {
	// SmallClaims are members' claims whose volumes are smaller than wanted. KeepsTemplate: the members' pods
	// don't change until these volumes have grown. GrowthWaits: the volumes don't grow before one member is
	// ready with the memory that they are to have room for, or storage.size asks for it.
	SmallClaims                []action.ClaimRef
	KeepsTemplate, GrowthWaits bool
}

// decideGrowth decides which volumes grow. While one is too small for the new
// memory, the members' pods stay as they are.
func decideGrowth(o *Observed) (g Growth, w claims.Work) {
	wanted := o.Cluster.VolumeSize
	waits := !o.Cluster.VolumeSizeGiven && !o.MemoryRuns
	for i := range o.Claims {
		c := &o.Claims[i]
		if !c.Small(wanted) {
			continue
		}
		g.SmallClaims = append(g.SmallClaims, c.Ref())
		g.KeepsTemplate = g.KeepsTemplate || c.Capacity <= o.Cluster.Memory
		g.GrowthWaits = waits
		if !waits && c.Asked < wanted {
			w.Do(action.GrowClaim{Claim: c.Ref(), Size: wanted})
		}
	}
	return g, w
}
