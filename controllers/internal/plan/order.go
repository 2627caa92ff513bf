package plan

import (
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"
)

// Drains and moves have one total order, which only this file defines. A drain adds items and never
// replaces any, so newer values have to come first:
//
//  1. The volumes by which clients found items when a ring last moved keys, or later: those of
//     members that left with that ring, and those that were set aside since then. The volume
//     whose member left last comes first.
//  2. The moves of that ring. They wait for the volumes of the first group, unless these wait
//     for members that join: no drain can begin before clients know the joining members, and
//     clients are not told of them before the moves have ended.
//  3. All other volumes, which are older. The volume whose member left last comes first.
//
// A volume waits for those that come before it, and for none that comes after it. So no two
// volumes wait for each other, in whatever order they became due. Members that left together have
// no keys in common, so their volumes have no order. A drain or a move that waits for a person
// lets the others pass, and so does a claim about which the API server refuses a step
// (claims/obstructed.go). A change of size comes last: it waits for drains and moves, and no drain or
// move waits for a wanted size.
//
// A number beside the leaving mark tells which of two volumes left last. Times can't tell: two
// replicas of the operator may have different clocks.

// turn is the place of a volume in the order.
type turn struct {
	// afterMove: the volume belongs to the third group, otherwise to the first.
	afterMove bool
	left      int64
}

// before tells whether a volume with this turn is drained before a volume with the other turn.
func (t turn) before(other turn) bool {
	if t.afterMove != other.afterMove {
		return other.afterMove
	}
	return t.left > other.left
}

func (o *Observed) turnOf(c *claims.Claim) turn {
	return turn{afterMove: o.drainedAfterMove(c), left: c.Left}
}

// drainedAfterMove tells whether the claim's volume belongs to the third group. If a volume was set
// aside, its claim says by which ring clients last stored items on it (claim.Moved). A member that
// was on no ring of the record has nothing that is newer than what the others have.
func (o *Observed) drainedAfterMove(c *claims.Claim) bool {
	switch {
	case c.Unmoved:
		return true
	case c.Aside:
		return c.Moved < o.Record.Serial || c.Ordinal >= max(o.Record.From.Size, o.Record.Ring.Size)
	}
	return c.Ordinal >= o.Record.From.Size
}

// storedBy is the serial of the last ring by which clients stored items on a volume that is about
// to be set aside; 0 if they have found newer items elsewhere since then.
func (o *Observed) storedBy(c *claims.Claim) int64 {
	if !c.LeavingSince.IsZero() && o.drainedAfterMove(c) {
		return 0
	}
	return o.Record.Serial
}

// earlierDrainDue tells whether a volume that comes before this one is about to be drained, or
// will be tried again.
func (o *Observed) earlierDrainDue(c *claims.Claim) bool {
	return slices.ContainsFunc(o.Claims, func(d claims.Claim) bool {
		return !d.LeavingSince.IsZero() && o.turnOf(&d).before(o.turnOf(c)) && d.Volume != "" && d.Volume != c.Volume && d.Receipt == nil && o.DrainsByItself(&o.Cluster.Terms, &d)
	})
}
