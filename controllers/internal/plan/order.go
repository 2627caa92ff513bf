package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Drains and moves have one total order, which only this file defines. A drain adds items and never
// replaces any, so newer values have to come first:
//
//  1. The volumes by which clients found items when a ring last moved keys, or later: those of
//     members that left with that ring, and those that were set aside since then. The volume
//     whose member left last comes first.
//  2. The moves of that ring, which wait for the volumes of the first group, unless these wait
//     for members that join: no drain can begin before clients know the joining members, and
//     clients are not told of them before the moves have ended.
//  3. All other volumes, which are older. The volume whose member left last comes first.
//
// A volume waits for those that come before it, and for none that comes after it. So no two
// volumes wait for each other, in whatever order they became due. Members that left together have
// no keys in common, so their volumes have no order. A drain or a move that waits for a person
// lets the others pass, and so does a claim about which the API server refuses a step
// (claims/retry.go). A change of size comes last: it waits for drains and moves, and no drain or
// move waits for a wanted size.
//
// A number beside the leaving mark tells which of two volumes left last. Times can't tell: two
// replicas of the operator may have different clocks.

// before tells whether the member's volume comes before the other one.
func (m *member) before(other *member) bool {
	if m.afterMove != other.afterMove {
		return other.afterMove
	}
	return m.Left > other.Left
}

// afterMove tells whether the claim's volume belongs to the third group. If a volume was set
// aside, its claim says by which ring clients last stored items on it (claims.Claim.Moved). A member
// that was on no ring of the record has nothing that is newer than what the others have.
func afterMove(r *ring.Record, c *claims.Claim) bool {
	switch {
	case c.Unmoved:
		return true
	case c.Aside:
		return c.Moved < r.Serial || c.Ordinal >= max(r.From.Size, r.Ring.Size)
	}
	return c.Ordinal >= r.From.Size
}

// storedBy is the serial of the last ring by which clients stored items on a volume that is about
// to be set aside; 0 if they have found newer items elsewhere since then.
func storedBy(r *ring.Record, c *claims.Claim) int64 {
	if !c.LeavingSince.IsZero() && afterMove(r, c) {
		return 0
	}
	return r.Serial
}

// earlierDue tells whether a volume that comes before this one is about to be drained, or
// will be tried again.
func (v *view) earlierDue(m *member) bool {
	return slices.ContainsFunc(v.members, func(d member) bool {
		return !d.LeavingSince.IsZero() && d.before(m) && d.Volume != "" && d.Volume != m.Volume && d.Receipt == nil && v.DrainsByItself(&v.Cluster.Terms, d.Claim)
	})
}
