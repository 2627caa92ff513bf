package plan

import (
	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
)

// MostMembers is how many members there can be: as many as are wanted, as the StatefulSet has, or
// as have claims. A Job or the record can't raise the number, because any client may have written
// them.
func (o *Observed) MostMembers() int32 {
	most := max(o.Cluster.Size, o.StatefulSet.Replicas)
	for i := range o.Claims {
		if c := &o.Claims[i]; !c.Aside {
			most = max(most, c.Ordinal+1)
		}
	}
	return min(most, cachev1alpha1.MaxSize)
}

// staying is how many members the StatefulSet has, without those that have the leaving mark and are
// off the clients' list.
func (o *Observed) staying() int32 {
	departed := o.LowestMarked()
	if departed == nil {
		return o.StatefulSet.Replicas
	}
	return min(o.StatefulSet.Replicas, max(departed.Ordinal, o.Record.Ring.Size))
}

// isLeaving tells whether the claim's member has the leaving mark, is off the clients' list, and
// still exists.
func (o *Observed) isLeaving(c *claims.Claim) bool {
	return !c.LeavingSince.IsZero() && !c.Aside && o.Record.Ring.Size <= c.Ordinal && c.Ordinal < o.StatefulSet.Replicas
}
