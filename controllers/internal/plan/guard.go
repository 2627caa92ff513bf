package plan

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claim"
)

// A cache may be stale. So a step that can't be undone is decided once more, on state that was read
// live right before it. Each check returns why it refuses, and needs only the parts of the live
// state that its comment names. Checks that need only one claim are in package claim.

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
	case live.drainRuns():
		return errors.New("a drain is under way")
	case ordinal < min(live.staying(), live.Record.Ring.Size) && live.drainDue(live.staying()):
		return errors.New("another member's volume is drained first")
	}
	return nil
}

// MayDrain guards invariants 5 to 7: the member has left for good, its pod is gone, no other
// drainer uses the volume, the survivors are the members, no move runs, and no more drains run than
// allowed. It needs Cluster.Parallelism, StatefulSet, Jobs, Moves, Drainers, the claim, its
// member's pod and the drainer pods that mount it.
func MayDrain(live *Observed, a action.CreateDrain) error {
	claim := live.claim(a.Claim.UID)
	switch {
	case claim == nil || claim.Deleting:
		return fmt.Errorf("claim %s is being deleted", a.Claim.Name)
	case claim.LeavingSince.IsZero():
		return fmt.Errorf("claim %s is a member's", a.Claim.Name)
	case !claim.Finalizer:
		return fmt.Errorf("claim %s lacks the finalizer", a.Claim.Name)
	case !live.StatefulSet.Exists:
		return errors.New("the StatefulSet is gone")
	case live.drainSlots() <= 0:
		return fmt.Errorf("%d drains run already", live.Cluster.Parallelism)
	}
	reason, message := live.drainWaits(claim, a.Survivors)
	return unless(reason == "", "%s", message)
}

// MayMove guards invariants 5 and 10: the ring is the one that the plan saw, its members exist, no
// drain runs, no move by another ring runs, the claim's member has items to move or is leaving, and
// no other Job moves them. For a prepared move the ring is the next one. It needs Cluster,
// StatefulSet, Jobs, Moves, Drainers, Record, Claims and Ready.
func MayMove(live *Observed, a action.CreateMove) error {
	if a.Prepared {
		before := live.Record
		if live = live.at(before.Next(live.Cluster.Ring.Of(a.Members))); !live.mayPrepare(before) {
			return fmt.Errorf("nothing may be prepared for ring %s", a.Target)
		}
	}
	claim := live.claim(a.Claim.UID)
	leaves := claim != nil && live.mayMoveLive(claim)
	switch {
	case claim == nil || !leaves && !live.misplaced(claim):
		return fmt.Errorf("the member of claim %s has nothing to move", a.Claim.Name)
	case TargetWithout(live.Record.Target(), a.Lost) != a.Target:
		return fmt.Errorf("the clients' list is not of ring %s any more", a.Target)
	case !live.StatefulSet.Exists:
		return errors.New("the StatefulSet is gone")
	case live.beingMoved(claim):
		return fmt.Errorf("the member of claim %s is being moved already", a.Claim.Name)
	case live.moverSlots() <= 0:
		return fmt.Errorf("%d moves run already", mostMovers)
	case !a.Prepared && !a.Leases && live.waitsForLeases() != "":
		return errors.New(live.waitsForLeases())
	}
	why := live.moveWaits(a.Target)
	return unless(why == "", "%s", why)
}

// MayBegin guards invariants 5, 10 and 11: clients are told of the ring by which the member's items
// are moved, and all that MayMove asks for holds. It needs what MayMove needs.
func MayBegin(live *Observed, a action.BeginMove) error {
	claim := live.claim(a.Claim.UID)
	switch {
	case claim == nil || !live.mayMoveLive(claim) && !live.misplaced(claim):
		return fmt.Errorf("the member of claim %s has nothing to move", a.Claim.Name)
	case live.Record.Target() != a.Target || live.ListSize == 0:
		return fmt.Errorf("the clients' list is not of ring %s", a.Target)
	case !a.Leases && live.waitsForLeases() != "":
		return errors.New(live.waitsForLeases())
	}
	if job := live.moveOf(claim); job == nil || !job.mayBegin(a.Target) {
		return fmt.Errorf("no Job of the member of claim %s waits", a.Claim.Name)
	}
	why := live.moveWaits(a.Target)
	return unless(why == "", "%s", why)
}

// MayRecordSkip is asked before a member counts as moved because a person skips its move: the
// clients' list must have that ring. It needs Record.
func MayRecordSkip(live *Observed, a action.RecordMoved) error {
	return unless(live.Record.Serial >= a.Serial, "the clients' list must be of ring %d first", a.Serial)
}

// MaySetAside is asked before a claim is deleted so that its volume is set aside: its member has
// left, no Job drains it, and the volume is bound to it. It needs Jobs and Claim.Where.
func MaySetAside(live *Observed, c *claim.Claim) error {
	job := live.jobFor(c.UID)
	switch {
	case c.LeavingSince.IsZero() || !c.Finalizer:
		return fmt.Errorf("claim %s is a member's, or lacks the finalizer", c.Name)
	case job != nil && (job.running() || job.Deleting):
		return fmt.Errorf("Job %s drains claim %s", job.Name, c.Name)
	}
	return unless(c.Where == claim.Here, "volume %s is not bound to claim %s", c.Volume, c.Name)
}

// MayHandOver guards invariant 1 for a claim whose volume was set aside: another claim with the
// finalizer is bound to that volume. It guards invariant 11 for the member, which returns empty: no
// drain or move is at work, because its items may be older (returnsEmpty). It needs Claims, Jobs,
// Moves and Drainers.
func MayHandOver(live *Observed, c *claim.Claim) error {
	if what := live.movesNow(); what != "" && c.LeavingSince.IsZero() {
		return fmt.Errorf("%s may bring older items to the member of claim %s", what, c.Name)
	}
	for i := range live.Claims {
		a := &live.Claims[i]
		if a.Aside && a.UID != c.UID && a.Volume == c.Volume && a.Finalizer && !a.Deleting && !a.Pending {
			return unless(c.Deleting, "claim %s is not being deleted", c.Name)
		}
	}
	return fmt.Errorf("no other claim is bound to volume %s yet", c.Volume)
}

// MaySkipAside is asked before a claim that waits for a volume is annotated with a skip: a person
// has skipped the claim that has the volume. It needs Claims.
func MaySkipAside(live *Observed, c *claim.Claim) error {
	given := slices.ContainsFunc(live.Claims, func(s claim.Claim) bool {
		return s.UID != c.UID && s.Volume == c.Volume && s.Deleting && s.Request == claim.Skip
	})
	return unless(given && c.Aside && c.Pending, "no person has given up the claim whose volume claim %s is to take over", c.Name)
}

// MayRemoveClusterFinalizer is asked before the cluster's own finalizer is removed, because from
// then on the operator no longer looks after the claims. It needs Claims.
func MayRemoveClusterFinalizer(live *Observed) error {
	for i := range live.Claims {
		if c := &live.Claims[i]; c.Finalizer {
			return fmt.Errorf("claim %s still has the finalizer", c.Name)
		}
	}
	return nil
}

func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// claim returns the claim of this UID, or nil.
func (o *Observed) claim(uid types.UID) *claim.Claim {
	i := slices.IndexFunc(o.Claims, func(c claim.Claim) bool { return c.UID == uid })
	if i < 0 {
		return nil
	}
	return &o.Claims[i]
}
