package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// A member may be lost while items are moved to it, with its node, and may never be
// back. The size can be lowered again: what the other members hold of its is
// discarded, because clients may have stored newer values there since, and nobody
// can ask for them. What is discarded is missed; an old value would be believed.
// When all others are placed so, the lost member leaves as any other, and what it
// held is drained when its volume is back.

// lostAfter is how long a member that is to leave may be away before it is lost:
// one that is replaced is back sooner.
const lostAfter = time.Minute

// Away is a member that isn't ready, and since when; zero where nobody can tell.
type Away struct {
	Ordinal int32
	Since   time.Time
}

// lost are the members of the ring that are to leave and are not there, in order.
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

// dispensable tells whether the member can leave although nobody has looked through
// it. It came with the ring, and holds nothing older; or it is the only one that
// leaves. Then it is drained when all others are placed (Claim.Unplaced). Of two,
// each could hold older values than the other. And where a volume waits that was
// left before, its older values would take the place of what is discarded.
func (o *Observed) dispensable(ordinal int32) bool {
	size, record := o.Cluster.Size, &o.Record
	return 0 < size && size <= ordinal && ordinal < record.Ring.Size && (record.From.Size <= ordinal || size == record.Ring.Size-1) &&
		!slices.ContainsFunc(o.Claims, func(c Claim) bool {
			return !c.LeavingSince.IsZero() && c.Volume != "" && c.Receipt == nil && c.Request != Skip && !o.stranded(&c) && o.drainedAfterPlacement(&c)
		})
}

// lostAt is when the member is lost, if it doesn't come back before.
func (o *Observed) lostAt(ordinal int32) (at time.Time, away bool) {
	if slices.Contains(o.Ready, ordinal) {
		return time.Time{}, false
	}
	if i := slices.IndexFunc(o.Away, func(a Away) bool { return a.Ordinal == ordinal }); i >= 0 {
		at = o.Away[i].Since
	}
	return at.Add(lostAfter), true
}

// target names the ring that items are placed by now, and the lost members.
func (o *Observed) target() string { return TargetWithout(o.Record.Target(), o.lost()) }

// TargetWithout names a ring whose lost members are given nothing.
func TargetWithout(target string, lost []int32) string {
	if len(lost) == 0 {
		return target
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, lost)
	return fmt.Sprintf("%s-%08x", target, h.Sum32())
}
