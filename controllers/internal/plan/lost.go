package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"example.com/memcached-operator/controllers/internal/claims"
)

// A member may be lost with its node while items are moved to it, and may never come back. Then the
// size can be lowered again. The copies of its items on other members are discarded: clients may
// have stored newer values on the lost member, which can't be read, and a miss is better than an
// old value. When the items of all others are moved, the lost member leaves like any other member,
// and its volume is drained when it comes back.

// lostAfter is how long a member that is to leave may be away before it counts as lost. A member
// whose pod is replaced comes back sooner.
const lostAfter = time.Minute

// lost returns the members of the ring that are to leave and are lost, in order.
func (o *Observed) lost() []int32 {
	var lost []int32
	for i := o.Cluster.Size; i < o.Record.Ring.Size; i++ {
		if o.isLost(i) {
			lost = append(lost, i)
		}
	}
	return lost
}

func (o *Observed) isLost(ordinal int32) bool {
	at, away := o.lostAt(ordinal)
	return o.dispensable(ordinal) && away && !at.After(o.Now)
}

// dispensable tells whether the member can leave before its items are moved. Either it joined with
// the present ring, and has nothing older; or it is the only member that leaves, and is drained
// when all others are moved (Claim.Unmoved). With two such members, each could have older values
// than the other. While the volume of an earlier member waits, no member is dispensable: the older
// values on that volume would replace what is discarded.
func (o *Observed) dispensable(ordinal int32) bool {
	size, record := o.Cluster.Size, &o.Record
	return 0 < size && size <= ordinal && ordinal < record.Ring.Size && (record.From.Size <= ordinal || size == record.Ring.Size-1) &&
		!slices.ContainsFunc(o.Claims, func(c claims.Claim) bool {
			return !c.LeavingSince.IsZero() && c.Volume != "" && c.Receipt == nil && c.Request != claims.Skip && o.Cluster.ToDrain(&c) && !o.Stranded(&c) &&
				(c.Aside || o.drainedAfterMove(&c))
		})
}

// lostAt is when the member counts as lost if it doesn't become ready before.
func (o *Observed) lostAt(ordinal int32) (at time.Time, away bool) {
	if slices.Contains(o.Ready, ordinal) {
		return time.Time{}, false
	}
	if i := slices.IndexFunc(o.Away, func(a Away) bool { return a.Ordinal == ordinal }); i >= 0 {
		at = o.Away[i].Since
	}
	return at.Add(lostAfter), true
}

// target names the ring by which items are moved now, and the lost members.
func (o *Observed) target() string { return TargetWithout(o.Record.Target(), o.lost()) }

// TargetWithout names a ring whose lost members get no items.
func TargetWithout(target string, lost []int32) string {
	if len(lost) == 0 {
		return target
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, lost)
	return fmt.Sprintf("%s-%08x", target, h.Sum32())
}
