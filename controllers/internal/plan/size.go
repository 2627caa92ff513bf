package plan

import (
	"errors"
	"fmt"
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// The size changes one step at a time: it waits for drains, for moves and for volumes that members
// left, and neither a drain nor a move waits for it (order.go).

// Size is how many members there are to be.
type Size struct {
	// Replicas is how many members stay, and SizeBlocked why that is not the wanted size.
	// SizeRefused is the API server's message with BlockedByRefusal.
	Replicas    int32
	SizeBlocked Block
	SizeRefused string
	// LingeringDrainer is the drainer's pod whose end a change of size waits for. Its Job is gone.
	LingeringDrainer string
	// Running is how many members the StatefulSet should have now: those that stay, and leaving
	// members that still run (depart.go).
	Running int32
}

// Block is why the size can't change yet.
type Block string

// The reasons that block a change of size.
const (
	NotBlocked Block = ""
	// BlockedByDrain: a drain is under way.
	BlockedByDrain Block = "Drain"
	// BlockedByVolume: the volume that a returning member left still exists.
	BlockedByVolume Block = "Volume"
	// BlockedByShortage: the survivors have too little room.
	BlockedByShortage Block = "Shortage"
	// BlockedByMemoryCheck: the members were asked how full they are, and have not answered yet.
	BlockedByMemoryCheck Block = "MemoryCheck"
	// BlockedByMove: members have items that clients look for elsewhere.
	BlockedByMove Block = "Move"
	// BlockedByRefusal: the API server refuses the mark of a member that is to leave.
	BlockedByRefusal Block = "Refusal"
)

// decideSize decides how many members stay.
func decideSize(o *Observed) (s Size, w claims.Work) {
	s.Replicas, s.SizeBlocked, _ = o.allowedSize(o.Cluster.Size)
	if why, is := o.unmarkable(s.Replicas); is {
		w.WakeAt(why.Until)
		return Size{Replicas: o.staying(), SizeBlocked: BlockedByRefusal, SizeRefused: why.Why}, w
	}
	switch {
	case s.SizeBlocked == BlockedByDrain && o.RunningDrain() == nil:
		s.LingeringDrainer = o.LingeringDrainer()
	case s.SizeBlocked != NotBlocked || !o.ScaleDownBegins():
	case o.Room.Asking():
		s.Replicas, s.SizeBlocked = o.StatefulSet.Replicas, BlockedByMemoryCheck
	case o.Cluster.WaitForRoom && o.Room.Short():
		s.Replicas, s.SizeBlocked = o.StatefulSet.Replicas, BlockedByShortage
	}
	if s.Replicas > 0 && s.Replicas < o.Table.NewSize() && o.settles() {
		s.Replicas, s.SizeBlocked = o.Table.NewSize(), BlockedByMove
	}
	return s, w
}

// untilMoved is the size when the clients' list gets this record: if items have to be moved by its
// ring, no member joins before that.
func (s Size) untilMoved(o *Observed, next ring.Record) Size {
	if next == o.Record || o.DrainRuns() {
		return s
	}
	if kept := o.at(next).sizeWhileMoving(s.Replicas); kept < s.Replicas {
		s.Replicas, s.SizeBlocked = kept, BlockedByMove
	}
	return s
}

// runsOn tells whether the member of the claim keeps running for now, although it is to leave.
func (s *Size) runsOn(c *claims.Claim) bool {
	return !c.Aside && !c.Deleting && s.Replicas <= c.Ordinal && c.Ordinal < s.Running
}

// ScaleDownBegins tells whether a scale-down is about to begin, so that the items of the
// leaving members need room.
func (o *Observed) ScaleDownBegins() bool {
	c := &o.Cluster
	return !c.Deleting && !c.NamespaceTerminating && c.Policy == claims.Drain && o.StatefulSet.Exists && !o.DrainRuns() && !o.moving() &&
		0 < c.Size && c.Size < o.StatefulSet.Replicas &&
		slices.ContainsFunc(o.Claims, func(c claims.Claim) bool { return c.Ordinal >= o.Cluster.Size && c.LeavingSince.IsZero() })
}

// allowedSize returns the size that the cluster may have now, if the given size is wanted. The size
// doesn't change during a drain, or before items are moved. The cluster doesn't shrink before the
// volumes of members that left earlier are drained. No member comes back to a volume that it left.
// If another size is returned, blocked and why say what the wanted size waits for. The plan asks
// this, and MaySetReplicas asks it about live state.
func (o *Observed) allowedSize(wanted int32) (size int32, blocked Block, why string) {
	departed := o.LowestMarked()
	size = o.sizeWhileMoving(wanted)
	switch job, lingering := o.RunningDrain(), o.LingeringDrainer(); {
	case job != nil:
		size, blocked, why = o.sizeWhileMoving(min(job.Survivors, o.MostMembers())), BlockedByDrain, fmt.Sprintf("Job %s drains into %d members", job.Name, job.Survivors)
	case lingering != "" && o.StatefulSet.Exists && wanted > 0:
		size, blocked, why = o.sizeBefore(), BlockedByDrain, fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", lingering)
	case o.marksWait(departed):
		size, blocked, why = o.sizeWhileMoving(o.staying()), BlockedByDrain, "the volume of a member that left is drained first"
	case o.staysBelow(departed, size) < size: // staysBelow applies after the switch
	case departed != nil && o.DrainDue(&o.Cluster.Terms, 0) && o.memberWouldLeave(size, departed.Ordinal):
		size, blocked, why = min(departed.Ordinal, max(size, o.sizeBefore())), BlockedByDrain, "the volume of a member that left is drained first"
	case size != wanted:
		blocked, why = BlockedByMove, fmt.Sprintf("items have to be moved among %d members", size)
	}
	if stays := o.staysBelow(departed, size); stays < size {
		size, blocked, why = stays, BlockedByVolume, fmt.Sprintf("claim %s was left by its member, and is still there", departed.Name)
	}
	if size == wanted {
		return size, NotBlocked, ""
	}
	return size, blocked, why
}

// sizeWhileMoving returns the size that moves allow if the given size is wanted. While items have
// to be moved, no member of the ring leaves and none joins. All members may stop together (size 0),
// because each returns with the items that it has.
func (o *Observed) sizeWhileMoving(wanted int32) int32 {
	if wanted == 0 || !o.moving() {
		return wanted
	}
	return max(min(o.Record.Ring.Size, o.MostMembers()), min(wanted, o.staying()))
}

// staysBelow returns the size that brings no member back to a volume that it left. Any client can
// write a leaving mark. So during a drain, or before items are moved, no member leaves that exists
// or is on the clients' list.
func (o *Observed) staysBelow(departed *claims.Claim, size int32) int32 {
	switch {
	case departed == nil:
		return size
	case o.DrainRuns() || o.moving() || o.marksWait(departed):
		return max(departed.Ordinal, min(size, max(o.staying(), o.Record.Ring.Size)))
	}
	return min(size, departed.Ordinal)
}

// marksWait tells whether a member with a higher ordinal has no mark yet, and can't get one before
// an earlier volume is drained. Then the size doesn't change.
func (o *Observed) marksWait(departed *claims.Claim) bool {
	members := o.staying()
	return departed != nil && o.DrainDue(&o.Cluster.Terms, members) && o.memberWouldLeave(departed.Ordinal, min(members, o.Record.Ring.Size))
}

// sizeBefore is how many members stay or, if all members have stopped, how many the ring has.
func (o *Observed) sizeBefore() int32 {
	if n := o.staying(); o.StatefulSet.Exists && n > 0 {
		return n
	}
	return min(o.Record.Ring.Size, o.MostMembers())
}

// memberWouldLeave tells whether a member with an ordinal in this range would get the leaving mark.
func (o *Observed) memberWouldLeave(from, to int32) bool {
	return from > 0 && slices.ContainsFunc(o.Claims, func(c claims.Claim) bool {
		return from <= c.Ordinal && c.Ordinal < to && c.LeavingSince.IsZero()
	})
}

// unmarkable returns why a claim that needs the leaving mark for this size can't get it now.
func (o *Observed) unmarkable(size int32) (why claims.Obstruction, is bool) {
	if size == 0 {
		return why, false // a hibernating cluster marks no claim
	}
	for i := range o.Claims {
		c := &o.Claims[i]
		if !c.Aside && size <= c.Ordinal && c.Ordinal < o.staying() && c.LeavingSince.IsZero() {
			if why, is = o.RefusedNow(c); is {
				return why, true
			}
		}
	}
	return why, false
}

// A cache may be stale. So a step that can't be undone is decided once more, on state that was read
// live right before it. Each check (May…) returns why it refuses, and needs only the parts of the
// live state that its comment names. Checks that need only claims are in package claims.

// MaySetReplicas guards invariants 5 and 11: the size is allowed (allowedSize), and no
// member leaves a volume without the mark. It needs Cluster, StatefulSet, Jobs,
// Moves, Drainers, Record and Claims.
func MaySetReplicas(live *Observed, replicas int32) error {
	if size, _, why := live.allowedSize(replicas); size != replicas {
		return errors.New(why)
	}
	if kept := live.sizeWhileMoving(replicas); kept != replicas { // any client may have marked a claim of these members
		return fmt.Errorf("items have to be moved among %d members", kept)
	}
	for i := range live.Claims {
		if c := &live.Claims[i]; !c.Aside && c.Ordinal >= replicas && replicas > 0 && c.LeavingSince.IsZero() {
			return fmt.Errorf("claim %s has no leaving mark yet", c.Name)
		}
	}
	return nil
}

// MayMark is asked before a claim gets the leaving mark, which can't be undone. It refuses while a
// drain is at work and while items have to be moved among members that include this one. If clients
// know this member, it also refuses while the volume of an earlier member is about to be drained.
// It needs Cluster, StatefulSet, Jobs, Moves, Drainers, Record and Claims.
func MayMark(live *Observed, ordinal int32) error {
	switch size, _, _ := live.allowedSize(min(live.Cluster.Size, live.StatefulSet.Replicas)); {
	case live.moving() && ordinal < size:
		return fmt.Errorf("items have to be moved among %d members", size)
	case live.DrainRuns():
		return errors.New("a drain is under way")
	case ordinal < min(live.staying(), live.Record.Ring.Size) && live.DrainDue(&live.Cluster.Terms, live.staying()):
		return errors.New("another member's volume is drained first")
	}
	return nil
}
