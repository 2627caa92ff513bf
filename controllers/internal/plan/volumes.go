package plan

import (
	"errors"
	"fmt"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// decideVolumes takes the claim of each leaving or departed member one step further, highest
// ordinal first. Package claims decides; here is what it depends on.
func decideVolumes(o *Observed, size *Size) (claims.Volumes, claims.Work) {
	v, w := o.Decide(&claims.Given{
		Terms: &o.Cluster.Terms, Parallelism: o.Cluster.Parallelism, Wanted: o.Cluster.Size, Survivors: size.Replicas,
		Leaves: func(c *claims.Claim) (claims.DrainPhase, string, string) {
			if !size.runsOn(c) {
				return "", "", ""
			}
			return o.leaves(c)
		},
		Waits:      func(c *claims.Claim) (reason, message string) { return o.drainWaits(c, size.Replicas) },
		WaitsUntil: o.leasesExpire(), MovesNow: o.movesNow(), StoredBy: o.storedBy,
	})
	for i := range v.Drains {
		v.Drains[i].Mover = o.moveOf(&v.Drains[i].Claim)
	}
	return v, w
}

// leaves tells how a leaving member that still runs stands.
func (o *Observed) leaves(c *claims.Claim) (phase claims.DrainPhase, reason, message string) {
	switch job := o.moveOf(c); {
	case o.waitsForMover(c):
		return claims.Leaving, "", ""
	case job != nil && job.State == claims.JobComplete:
		return claims.Leaving, claims.InTurn, "its items have been moved: it leaves together with the other leaving members"
	}
	return claims.Leaving, claims.InTurn, "its items are drained when it is gone: it leaves together with the other leaving members"
}

// drainWaits tells what a drain of the claim to that many survivors waits for. The reason
// is empty if it may begin. The plan asks this, and MayDrain asks it about live state.
func (o *Observed) drainWaits(c *claims.Claim, survivors int32) (reason, message string) {
	if reason, message = o.Unmounted(c); reason != "" {
		return reason, message
	}
	switch {
	case o.earlierDrainDue(c):
		return claims.InTurn, "the volume of another member is drained first: its values are newer"
	case o.waitsForLeases() != "":
		return claims.InTurn, o.waitsForLeases() + ": a drain would take a lease for a newer value"
	case o.moveRuns() || o.drainedAfterMove(c) && o.moving():
		return claims.InTurn, "the survivors' items are moved first"
	case c.Pending:
		return claims.SettingAside, fmt.Sprintf("volume %s is not bound to the claim yet", c.Volume)
	case survivors > c.Ordinal && !c.Aside || o.StatefulSet.Replicas != survivors:
		// This plan makes the StatefulSet smaller, which brings an event.
		return claims.PodPresent, fmt.Sprintf("the StatefulSet is not at %d members yet", survivors)
	case o.Record.Ring.Size != survivors:
		// With another ring, items would go to members that clients don't ask for them. The next
		// ring change would treat those members as empty.
		return claims.InTurn, fmt.Sprintf("the clients' list must have %d members first", survivors)
	}
	return "", ""
}

// MayDrain guards invariants 5 to 7: the member has left for good, its pod is gone, no other
// drainer uses the volume, the survivors are the members, no move runs, and no more drains run than
// allowed. It needs Cluster.Parallelism, StatefulSet, Jobs, Moves, Drainers, the claim, its
// member's pod and the drainer pods that mount it.
func MayDrain(live *Observed, a action.CreateDrain) error {
	claim := live.Claim(a.Claim.UID)
	switch {
	case claim == nil || claim.Deleting:
		return fmt.Errorf("claim %s is being deleted", a.Claim.Name)
	case claim.LeavingSince.IsZero():
		return fmt.Errorf("claim %s is a member's", a.Claim.Name)
	case !claim.Finalizer:
		return fmt.Errorf("claim %s lacks the finalizer", a.Claim.Name)
	case !live.StatefulSet.Exists:
		return errors.New("the StatefulSet is gone")
	case live.Slots(live.Cluster.Parallelism) <= 0:
		return fmt.Errorf("%d drains run already", live.Cluster.Parallelism)
	}
	reason, message := live.drainWaits(claim, a.Survivors)
	if reason != "" {
		return errors.New(message)
	}
	return nil
}

// MayHandOver is claims.MayHandOver. It needs Claims, Jobs, Moves and Drainers.
func MayHandOver(live *Observed, c *claims.Claim) error {
	return claims.MayHandOver(&live.Facts, c, live.movesNow())
}
