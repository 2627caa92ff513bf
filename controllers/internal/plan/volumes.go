package plan

import (
	"errors"
	"fmt"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
)

// decideVolumes takes the claim of each leaving or departed member one step further, highest
// ordinal first. Package claims decides; here is what it depends on.
func decideVolumes(v *view, size *Size) (claims.Volumes, claims.Work) {
	leaves := func(c *claims.Claim) (phase claims.DrainPhase, reason, message string) {
		switch m := v.of(c.UID); {
		case !size.runsOn(c):
			return "", "", ""
		case m.waits:
			return claims.Leaving, "", ""
		case m.mover != nil && m.mover.State == claims.JobComplete:
			return claims.Leaving, claims.InTurn, "its items have been moved: it leaves together with the other leaving members"
		case m.InPod:
			return claims.Leaving, claims.InTurn, "its items go with its pod: it leaves together with the other leaving members"
		}
		return claims.Leaving, claims.InTurn, "its items are drained when it is gone: it leaves together with the other leaving members"
	}
	if v.Cluster.InPods {
		return decidePods(v, leaves), claims.Work{}
	}
	volumes, w := v.Decide(&claims.Given{
		Terms: &v.Cluster.Terms, Parallelism: v.Cluster.Parallelism, Wanted: action.Range{Count: v.Cluster.Size}, Survivors: action.Range{Count: size.Replicas},
		Leaves:     leaves,
		Waits:      func(c *claims.Claim) (reason, message string) { return drainWaits(v, v.of(c.UID), size.Replicas) },
		WaitsUntil: v.leasesExpire, WaitsForReturn: v.returns, MovesNow: v.movesNow,
	})
	for i := range w.Actions {
		if a, is := w.Actions[i].(action.CreateAside); is {
			a.StoredBy = storedBy(&v.Record, v.Claim(a.Claim.UID))
			w.Actions[i] = a
		}
	}
	for i := range volumes.Drains {
		d := &volumes.Drains[i]
		d.Mover = v.of(d.Claim.UID).mover
	}
	return volumes, w
}

// drainWaits tells what a drain of the claim to that many survivors waits for. The reason
// is empty if it may begin. The plan asks this, and MayDrain asks it about live state.
func drainWaits(v *view, m *member, survivors int32) (reason, message string) {
	if reason, message = v.Unmounted(m.Claim); reason != "" {
		return reason, message
	}
	switch {
	case v.returns != "":
		return claims.InTurn, v.returns
	case v.stepping:
		return claims.InTurn, "a member is out of the ring for its restart"
	case v.earlierDue(m):
		return claims.InTurn, "the volume of another member is drained first: its values are newer"
	case v.leasesWait != "":
		return claims.InTurn, v.leasesWait + ": a drain would take a lease for a newer value"
	case v.warms != "":
		return claims.InTurn, fmt.Sprintf("Job %s, which copies older values, ends first", v.warms)
	case v.moverExists || m.afterMove && (v.moving || v.misplaced):
		return claims.InTurn, "the survivors' items are moved first"
	case m.Pending:
		return claims.SettingAside, fmt.Sprintf("volume %s is not bound to the claim yet", m.Volume)
	case survivors > m.Ordinal && !m.Aside || v.StatefulSet.Replicas != survivors:
		// This plan makes the StatefulSet smaller, which brings an event.
		return claims.PodPresent, fmt.Sprintf("the StatefulSet is not at %d members yet", survivors)
	case v.Record.Ring.Size != survivors:
		// With another ring, items would go to members that clients don't ask for them. The next
		// ring change would treat those members as empty.
		return claims.InTurn, fmt.Sprintf("the clients' list must have %d members first", survivors)
	}
	return "", ""
}

// MayDrain guards invariants 5 to 7: the member has left for good, its pod is gone, no other drainer uses the
// volume, the survivors are the members, no move runs, and no more drains run than allowed. MayDrain needs
// Cluster.Parallelism, StatefulSet, Jobs, Moves, Drainers, the claim, its member's pod and the drainer pods
// that mount it.
func MayDrain(live *Observed, a action.CreateDrain) error {
	v := look(live)
	if err := claims.MayDrain(&live.Facts, live.Claim(a.Claim.UID), a.Claim, live.Cluster.Parallelism); err != nil {
		return err
	}
	if !live.StatefulSet.Exists {
		return errors.New("the StatefulSet is gone")
	}
	_, message := drainWaits(v, v.of(a.Claim.UID), a.Survivors.Count)
	return refusedIf(message)
}

// MayHandOver is claims.MayHandOver, and needs Claims, Jobs, Moves and Drainers.
func MayHandOver(live *Observed, c *claims.Claim) error {
	return claims.MayHandOver(&live.Facts, c, look(live).movesNow)
}
