package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// decideEnd removes the finalizers, after the Memcached or its namespace was deleted.
func decideEnd(o *Observed) (w claims.Work) {
	if !o.Cluster.NamespaceTerminating {
		for _, j := range slices.Concat(o.Jobs, o.Moves) {
			w.DeleteJob(&j, "the Memcached is deleted")
		}
		if o.StatefulSet.Exists && !o.Cluster.Orphan {
			// The StatefulSet's controller could still create claims. The deletion of the StatefulSet
			// brings an event.
			if !o.StatefulSet.Deleting {
				w.Do(action.DeleteMembers{UID: o.StatefulSet.UID})
			}
			return w
		}
	}
	left := o.having(slices.Clone(o.Claims)) // what is left to release
	for i := range left.Claims {
		if c := &left.Claims[i]; endClaim(left, c, &w) {
			c.Finalizer = false
		}
	}
	if o.Cluster.Finalizer && claims.MayRemoveClusterFinalizer(&left.Facts) == nil {
		w.Do(action.RemoveClusterFinalizer{})
	}
	return w
}

// endClaim plans the last steps of a claim, and tells whether they release it.
func endClaim(o *Observed, c *claims.Claim, w *claims.Work) (released bool) {
	why := action.ByClusterDeletion
	if o.Cluster.NamespaceTerminating {
		why = action.ByNamespace
	} else if aside := o.AsideOf(c); aside != nil || o.TakesOver(c) {
		// Wait, because the volume is bound to neither claim yet.
		w.HandOver(&o.Facts, c, aside, look(o).movesNow)
		return false
	}
	if why == action.ByClusterDeletion || c.Finalizer {
		w.ReturnVolume(&o.Facts, c)
	}
	drained := c.Receipt != nil && c.Receipt.AddsUp(string(c.UID)) == nil
	unwanted := o.Cluster.DeleteClaims && !o.Cluster.Orphan && !c.Adopted
	if why == action.ByClusterDeletion && (unwanted || drained) && !c.Deleting {
		w.Do(action.DeleteClaim{Claim: c.Ref(), Why: why})
	}
	if c.Finalizer {
		w.Do(action.ReleaseClaim{Claim: c.Ref(), Why: why})
	}
	return c.Finalizer
}
