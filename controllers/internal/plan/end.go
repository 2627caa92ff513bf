package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// decideEnd removes the finalizers, after the Memcached or its namespace was deleted.
func decideEnd(o *Observed) (w claims.Work) {
	if !o.Cluster.NamespaceTerminating {
		for _, j := range slices.Concat(o.Jobs, o.Moves, o.Warms) {
			w.DeleteJob(&j, "the Memcached is deleted")
		}
		if o.StatefulSet.Exists && o.Cluster.Orphan && (o.StatefulSet.Partition > 0 || o.Cluster.StepsOutForEvictions) {
			w.Do(action.OpenPartition{UID: o.StatefulSet.UID})
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
	why := action.ByOwnerDeletion
	if o.Cluster.NamespaceTerminating {
		why = action.ByNamespace
	}
	left, _, released := o.End(&claims.Ending{
		Why: why, MovesNow: look(o).movesNow, SetAside: func(*claims.Claim) bool { return false },
		Unwanted: func(c *claims.Claim) bool { return o.Cluster.DeleteClaims && !o.Cluster.Orphan && !c.Adopted },
	})
	w.Then(released)
	if o.Cluster.Finalizer && claims.MayRemoveOwnerFinalizer(left) == nil {
		w.Do(action.RemoveOwnerFinalizer{})
	}
	return w
}
