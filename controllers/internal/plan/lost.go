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

// lookForLost finds the members of the ring that are to leave and are lost.
//
// A lost member can leave before its items are moved if it joined with the present ring, because it has
// nothing older; or if it is the only member that leaves: its volume is drained when all others' items are
// moved (Claim.Unmoved). Two such members could each have older values than the other. While the volume of an
// earlier member waits, no member is lost: the older values on that volume would replace what is discarded.
func (v *view) lookForLost() {
	v.target = v.Record.Target()
	size, record := v.Cluster.Size, &v.Record
	if size == 0 || size >= record.Ring.Size || slices.ContainsFunc(v.members, v.olderWaits) {
		return
	}
	for i := size; i < record.Ring.Size; i++ {
		dispensable := record.From.Size <= i || size == record.Ring.Size-1
		if !dispensable || slices.Contains(v.Ready, i) {
			continue
		}
		var since time.Time
		if at := slices.IndexFunc(v.Away, func(a Away) bool { return a.Ordinal == i }); at >= 0 {
			since = v.Away[at].Since
		}
		switch lost := since.Add(lostAfter); {
		case !lost.After(v.Now):
			v.lost = append(v.lost, i)
		case v.nextLost.IsZero() || lost.Before(v.nextLost):
			v.nextLost = lost
		}
	}
	v.target = TargetWithout(v.target, v.lost)
}

// lookForGone finds out whether the member that is out of the ring is gone: it has been away for lostAfter,
// and another size is wanted. Its node may never come back, so the size waits neither for the member nor for
// the items that it may still have. The member stays out, and the step continues when the member is back.
func (v *view) lookForGone() {
	r := v.Record.Ring
	if size := v.Cluster.Size; r.Out == 0 || v.settle || size == 0 || size == r.Size || size == 1 && r.Out == 1 { // a ring has a member
		return
	}
	if since := v.awayForLong(r.Out - 1); !since.IsZero() {
		v.gone = !since.After(v.Now)
		v.goneAt = since
	}
}

// awayForLong is when the member has been away for lostAfter; zero if it is not away.
func (v *view) awayForLong(ordinal int32) time.Time { return v.awayFor(ordinal, lostAfter) }

// awayFor is when the member has been away for so long; zero if it is not away.
func (v *view) awayFor(ordinal int32, long time.Duration) time.Time {
	at := slices.IndexFunc(v.Away, func(a Away) bool { return a.Ordinal == ordinal })
	if at < 0 || slices.Contains(v.Ready, ordinal) {
		return time.Time{}
	}
	return v.Away[at].Since.Add(long)
}

// isAway tells whether the member has been away for so long by itself: not for its eviction.
func (v *view) isAway(ordinal int32, long time.Duration) bool {
	since := v.awayFor(ordinal, long)
	return !since.IsZero() && !since.After(v.Now) && !slices.Contains(v.Aside, ordinal)
}

// olderWaits tells whether the volume of an earlier member waits to be drained.
func (v *view) olderWaits(m member) bool {
	return !m.LeavingSince.IsZero() && m.Volume != "" && m.Receipt == nil && m.Request != claims.Skip && v.Cluster.ToDrain(m.Claim) && !v.Stranded(m.Claim) &&
		(m.Aside || m.afterMove)
}

// TargetWithout names a ring whose lost members get no items.
func TargetWithout(target string, lost []int32) string {
	if len(lost) == 0 {
		return target
	}
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, lost)
	return fmt.Sprintf("%s-%08x", target, h.Sum32())
}

// stuckFor is how long a drain, a move or a copy may be stuck before a roll-out goes on without steps: a new image may
// not wait for a node that is gone, or for a person. Kubernetes takes five minutes to give a dead node's pods up.
const stuckFor = 5 * time.Minute

// lookForStuck finds out what has been stuck for long.
func (v *view) lookForStuck() {
	for _, s := range v.Stuck {
		switch long := s.Since.Add(stuckFor); {
		case !long.After(v.Now):
			v.stuck = s.What
		case v.stuckAt.IsZero() || long.Before(v.stuckAt):
			v.stuckAt = long
		}
	}
}
