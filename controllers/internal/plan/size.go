package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"example.com/memcached-operator/controllers/internal/claims"
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
	// LingeringDrainer is a drainer's pod whose Job is gone. A change of size waits for the pod's end.
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
	// BlockedByStep: a member is out of the ring for its restart.
	BlockedByStep Block = "Step"
	// BlockedByRefusal: the API server refuses the mark of a member that is to leave.
	BlockedByRefusal Block = "Refusal"
)

// decideSize decides how many members stay.
func decideSize(v *view) (s Size, w claims.Work) {
	a := allowedSize(v, v.Cluster.Size)
	s.Replicas, s.SizeBlocked = a.size, a.blocked
	if why, is := unmarkable(v, s.Replicas); is {
		w.WakeAt(why.Until)
		return Size{Replicas: v.staying, SizeBlocked: BlockedByRefusal, SizeRefused: why.Why}, w
	}
	switch {
	case s.SizeBlocked == BlockedByDrain && v.drain == nil:
		s.LingeringDrainer = v.lingering
	case s.SizeBlocked != NotBlocked || !v.scaleDownBegins():
	case v.Room.Asking():
		s.Replicas, s.SizeBlocked = v.StatefulSet.Replicas, BlockedByMemoryCheck
	case v.Cluster.WaitForRoom && v.Room.Short():
		s.Replicas, s.SizeBlocked = v.StatefulSet.Replicas, BlockedByShortage
	}
	switch {
	case s.Replicas == 0 || !v.settle:
	case v.Table.New.Out > 0 && s.Replicas != v.Table.NewSize():
		s.Replicas, s.SizeBlocked = v.Table.NewSize(), BlockedByStep
	case s.Replicas < v.Table.NewSize():
		s.Replicas, s.SizeBlocked = v.Table.NewSize(), BlockedByMove
	}
	return s, w
}

// untilMoved is the size when the clients' list has changed: if items have to be moved by its ring,
// no member joins before that.
func (s Size) untilMoved(v *view) Size {
	if kept := sizeWhileMoving(v, s.Replicas); !v.drains && kept < s.Replicas {
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
func (o *Observed) ScaleDownBegins() bool { return look(o).scaleDownBegins() }

func (v *view) scaleDownBegins() bool {
	c := &v.Cluster
	return !c.Deleting && !c.NamespaceTerminating && c.Policy == claims.Drain && v.StatefulSet.Exists && !v.drains && !v.ringStays() &&
		0 < c.Size && c.Size < v.StatefulSet.Replicas && v.memberWouldLeave(c.Size, math.MaxInt32)
}

// allowed is a size that the cluster may have now. If that is not the wanted size, blocked and why say what
// the wanted size waits for.
type allowed struct {
	size    int32
	blocked Block
	why     string
}

// allowedSize returns the size that the cluster may have now, if the given size is wanted. The size
// doesn't change during a drain, or before items are moved. The cluster doesn't shrink before the
// volumes of members that left earlier are drained. No member comes back to a volume that it left.
// The plan asks this, and MaySetReplicas asks it about live state.
func allowedSize(v *view, wanted int32) (a allowed) {
	departed := v.lowest
	// before is how many members stay or, if all members have stopped, how many the ring has.
	before := v.staying
	if !v.StatefulSet.Exists || before == 0 {
		before = min(v.Record.Ring.Size, v.MostMembers())
	}
	// marksWait: a member with a higher ordinal has no mark yet, and can't get one before an earlier
	// volume is drained. Then the size doesn't change.
	marksWait := departed != nil && v.DrainDue(&v.Cluster.Terms, v.staying) && v.memberWouldLeave(departed.Ordinal, min(v.staying, v.Record.Ring.Size))
	// stays is the size that brings no member back to a volume that it left. Any client can
	// write a leaving mark. So during a drain, or before items are moved, no member leaves that exists
	// or is on the clients' list.
	stays := func(size int32) int32 {
		switch {
		case departed == nil:
			return size
		case v.drains || v.ringStays() || marksWait:
			return max(departed.Ordinal, min(size, max(v.staying, v.Record.Ring.Size)))
		}
		return min(size, departed.Ordinal)
	}
	a.size = sizeWhileMoving(v, wanted)
	switch {
	case v.drain != nil:
		a = allowed{sizeWhileMoving(v, min(v.drain.Survivors.Count, v.MostMembers())), BlockedByDrain, fmt.Sprintf("Job %s drains into %d members", v.drain.Name, v.drain.Survivors.Count)}
	case v.lingering != "" && v.StatefulSet.Exists && wanted > 0:
		a = allowed{before, BlockedByDrain, fmt.Sprintf("drainer %s, whose Job is gone, has not ended yet", v.lingering)}
	case marksWait:
		a = allowed{sizeWhileMoving(v, v.staying), BlockedByDrain, "the volume of a member that left is drained first"}
	case stays(a.size) < a.size: // see below
	case departed != nil && v.DrainDue(&v.Cluster.Terms, 0) && v.memberWouldLeave(a.size, departed.Ordinal):
		a = allowed{min(departed.Ordinal, max(a.size, before)), BlockedByDrain, "the volume of a member that left is drained first"}
	case a.size != wanted && v.stepping:
		a.blocked, a.why = BlockedByStep, fmt.Sprintf("a member is out of the ring of %d members for its restart", a.size)
	case a.size != wanted:
		a.blocked, a.why = BlockedByMove, fmt.Sprintf("items have to be moved among %d members", a.size)
	}
	if stays := stays(a.size); stays < a.size {
		a = allowed{stays, BlockedByVolume, fmt.Sprintf("%s %s was left by its member, and is still there", departed.Kind(), departed.Name)}
	}
	if a.size == wanted {
		return allowed{size: wanted}
	}
	return a
}

// sizeWhileMoving returns the size that moves allow if the given size is wanted. While items have to be
// moved, or a member is out, no member of the ring leaves and none joins. All members may stop together (size
// 0), because each returns with its items.
func sizeWhileMoving(v *view, wanted int32) int32 {
	if wanted == 0 || !v.ringStays() {
		return wanted
	}
	return max(min(v.Record.Ring.Size, v.MostMembers()), min(wanted, v.staying))
}

// memberWouldLeave tells whether a member with an ordinal in this range would get the leaving mark.
func (v *view) memberWouldLeave(from, to int32) bool {
	return from > 0 && slices.ContainsFunc(v.Claims, func(c claims.Claim) bool {
		return from <= c.Ordinal && c.Ordinal < to && c.LeavingSince.IsZero()
	})
}

// unmarkable returns why a claim that needs the leaving mark for this size can't get it now.
func unmarkable(v *view, size int32) (why claims.Obstruction, is bool) {
	for i := range v.Claims {
		c := &v.Claims[i]
		if size > 0 && !c.Aside && size <= c.Ordinal && c.Ordinal < v.staying && c.LeavingSince.IsZero() { // at size 0 no claim is marked
			if why, is = v.RefusedNow(c); is {
				return why, true
			}
		}
	}
	return why, false
}

// A cache may be stale. So a step that can't be undone is decided once more, on state that was read
// live right before it. Each check (May…) returns why it refuses, and needs only the parts of the
// live state that its comment names. Checks that need only claims are in package claims.

// MaySetReplicas guards invariants 5 and 11: the size is allowed (allowedSize), and no member leaves a volume
// without the mark. MaySetReplicas needs Cluster, StatefulSet, Jobs, Moves, Drainers, Record and Claims.
func MaySetReplicas(live *Observed, replicas int32) error {
	v := look(live)
	if a := allowedSize(v, replicas); a.size != replicas {
		return errors.New(a.why)
	}
	if kept := sizeWhileMoving(v, replicas); kept != replicas { // any client may have marked a claim of these members
		return fmt.Errorf("items have to be moved among %d members", kept)
	}
	for i := range live.Claims {
		if c := &live.Claims[i]; !c.Aside && c.Ordinal >= replicas && replicas > 0 && c.LeavingSince.IsZero() && (!c.InPod || !c.Deleting) {
			return fmt.Errorf("%s %s has no leaving mark yet", c.Kind(), c.Name)
		}
	}
	return nil
}

// MayMark is asked before a claim gets the leaving mark, which can't be undone. MayMark refuses while a drain
// is at work and while items have to be moved among members that include this one. If clients know this
// member, MayMark also refuses while the volume of an earlier member is about to be drained. MayMark needs
// Cluster, StatefulSet, Jobs, Moves, Drainers, Record and Claims.
func MayMark(live *Observed, ordinal int32) error { return look(live).mayMark(ordinal) }

func (v *view) mayMark(ordinal int32) error {
	switch a := allowedSize(v, min(v.Cluster.Size, v.StatefulSet.Replicas)); {
	case v.ringStays() && ordinal < a.size:
		return fmt.Errorf("items have to be moved among %d members", a.size)
	case v.drains:
		return errors.New("a drain is under way")
	case ordinal < min(v.staying, v.Record.Ring.Size) && v.DrainDue(&v.Cluster.Terms, v.staying):
		return errors.New("another member's volume is drained first")
	}
	return nil
}
