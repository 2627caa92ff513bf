// Package invariants has the promises of a scale-down, one function each. The promises are checked for every
// step of a cluster: in the model that explores the plan, in the tests that stop the operator at each of its
// writes, and in chaos, which kills things at random under load.
//
// A function sees the state before a step and the one after it, and returns what is wrong. The functions know
// only the operator's finalizer, mark and receipt, and the drainer's flags. Their meaning is written here a
// second time, independently of the operator.
package invariants

import (
	"fmt"
	"slices"
	"strings"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/drainer/contract"
)

// Invariant is a promise that each step keeps.
type Invariant struct {
	Number int
	Name   string
	// Broken returns what is wrong with the step.
	Broken func(before, after *State) []string
}

// All are the invariants, by number.
var All = []Invariant{
	{1, "no release without a receipt", NoReleaseWithoutReceipt},
	{2, "a receipt adds up", ReceiptsAddUp},
	{3, "a departed member's volume is never written", DepartedVolumesAreOnlyRead},
	{4, "a survivor's value is never overwritten", SurvivorsKeepTheirValues},
	{5, "items go only to members that stay", ItemsGoToMembersThatStay},
	{6, "one user per volume", OneUserPerVolume},
	{7, "a lost pod is not a scale-down", LostPodsAreNoScaleDown},
	{8, "at rest, no writes", AtRestNothingIsWritten},
	{9, "nothing is stuck", NothingIsStuck},
	{10, "every item lands on its owner", ItemsLandOnTheirOwners},
	{11, "no old value comes back", NoOldValueComesBack},
}

// Violation is an invariant that a step broke.
type Violation struct {
	Invariant Invariant
	What      string
}

func (v Violation) String() string {
	return fmt.Sprintf("invariant %d, %s: %s", v.Invariant.Number, v.Invariant.Name, v.What)
}

// Check checks all invariants for one step. If before and after are the same, it checks a state.
func Check(before, after *State) []Violation {
	var found []Violation
	for _, invariant := range All {
		for _, what := range invariant.Broken(before, after) {
			found = append(found, Violation{invariant, what})
		}
	}
	return found
}

// NoReleaseWithoutReceipt checks that the finalizer is removed from a claim only if a
// receipt for exactly this claim is recorded on it, if a person said so, or if another
// claim with the finalizer is bound to the volume. And a volume that a claim was bound to goes only
// after one of the first two.
func NoReleaseWithoutReceipt(before, after *State) []string {
	var wrong []string
	for i := range before.Claims {
		c := &before.Claims[i]
		if now := after.claim(c.UID); !c.HasFinalizer || now != nil && now.HasFinalizer {
			continue
		}
		if releaseReason(before, c) == "" && !setAside(before, c) {
			wrong = append(wrong, fmt.Sprintf("claim %s (%s) has no finalizer any more", c.Name, c.UID))
		}
	}
	for _, v := range before.Volumes {
		if after.volume(v.Name) == nil && after.Volumes != nil && slices.Contains(after.Bound, v.Name) && !slices.Contains(after.GivenUp, v.Name) && !after.ended() {
			wrong = append(wrong, fmt.Sprintf("volume %s is gone, and no person gave its items up", v.Name))
		}
	}
	return wrong
}

// releaseReason tells what releases the claim, if anything does.
func releaseReason(s *State, c *Claim) string {
	if d := s.drainOf(c); d != nil {
		return releasedFromSet(s, d, c)
	}
	keeps, releasesUnreadable := s.Cluster.KeepsItems, s.Cluster.ReleasesUnreadable
	if c.Policy != "" { // it was decided when the member left
		keeps, releasesUnreadable = c.Policy == string(cachev1alpha1.PolicyDrain), c.ReleasesUnreadable
	}
	switch {
	case c.Receipt != nil && shortcoming(c.Receipt, c.UID) == "":
		return "its receipt"
	case c.Skip:
		return "a person"
	case s.ending():
		return "the cluster's end"
	case c.Leaving && !keeps:
		return "the policy"
	case c.Volume == "":
		return "it has no volume"
	case releasesUnreadable && foundUnreadable(c):
		return "it can't be read"
	}
	return ""
}

// foundUnreadable tells whether a drainer of the claim found that nothing can read it.
func foundUnreadable(c *Claim) bool {
	return slices.ContainsFunc(c.ReceiptsLeft, func(r *contract.Receipt) bool {
		return r.Source == c.UID && r.ExitCode == contract.ExitUnrecoverable
	})
}

// setAside tells whether the claim was deleted, and another one with the finalizer has its volume.
func setAside(s *State, c *Claim) bool {
	v := s.volume(c.Volume)
	if !c.Deleting || v == nil || v.Claim == c.UID {
		return false
	}
	other := s.claim(v.Claim)
	return other != nil && other.HasFinalizer && !other.Deleting && other.Volume == v.Name
}

// ReceiptsAddUp checks that a drainer of the claim left the receipt that is on the claim, and that the receipt
// accounts for every item of a source that was read to its end.
func ReceiptsAddUp(before, after *State) []string {
	var wrong []string
	for i := range after.Claims {
		c := &after.Claims[i]
		if c.Receipt == nil {
			continue
		}
		if b := before.claim(c.UID); b != nil && b != c && same(b.Receipt, c.Receipt) {
			continue
		}
		if what := shortcoming(c.Receipt, c.UID); what != "" {
			wrong = append(wrong, fmt.Sprintf("the receipt on claim %s: %s", c.Name, what))
		}
		if !wasLeft(c, c.Receipt) {
			wrong = append(wrong, fmt.Sprintf("no drainer of claim %s left the receipt that is on it", c.Name))
		}
	}
	return wrong
}

// shortcoming tells why the receipt doesn't allow to release this claim.
func shortcoming(r *contract.Receipt, uid string) string {
	switch outcomes := r.Added + r.AlreadyPresent + r.Expired + r.Invalidated + r.NoTextForm; {
	case r.Source != uid:
		return "it is about " + r.Source
	case !r.Complete:
		return "the source was not read to its end"
	case r.Rejected+r.Failed > 0:
		return "items were rejected, or failed"
	case r.Found != outcomes:
		return fmt.Sprintf("%d items found, %d accounted for", r.Found, outcomes)
	case r.ExitCode != 0 || r.Reason != "":
		return "the drainer failed: " + r.Reason
	}
	return ""
}

// DepartedVolumesAreOnlyRead checks that a Memcached's drainer mounts its claim read-only.
func DepartedVolumesAreOnlyRead(before, after *State) []string {
	var wrong []string
	for i := range after.Pods {
		p := &after.Pods[i]
		if p.drainer() && p.Claim != "" && !p.ReadOnly && !p.MayWrite && before.pod(p.UID) == nil {
			wrong = append(wrong, fmt.Sprintf("drainer %s may write on claim %s", p.Name, p.Claim))
		}
	}
	return wrong
}

// SurvivorsKeepTheirValues checks that a server's value is never replaced by an older one.
func SurvivorsKeepTheirValues(before, after *State) []string {
	var wrong []string
	for i := range after.Items {
		now := &after.Items[i]
		was := before.item(now.Key)
		if was == nil {
			continue
		}
		for server, value := range now.Found {
			if value < was.Found[server] {
				wrong = append(wrong, fmt.Sprintf("%s: %s had value %d, and has value %d", now.Key, server, was.Found[server], value))
			}
		}
	}
	return wrong
}

// ItemsGoToMembersThatStay checks that a drain begins with the present members as survivors, and that their
// number doesn't change while the drain may run. ItemsGoToMembersThatStay checks that a move begins among
// members that exist, while no drain runs, and that none of these members leaves before the move has ended,
// unless all leave. The end of the cluster first ends drains and moves.
func ItemsGoToMembersThatStay(before, after *State) []string {
	if after.ending() || !after.Members.Exists {
		return nil
	}
	var wrong []string
	for i := range after.Jobs {
		j := &after.Jobs[i]
		was, size := before.job(j.UID), after.Members.Replicas
		c := after.claim(j.ClaimUID)
		switch {
		case !j.Unfinished:
		case j.Moves:
			wrong = append(wrong, movedAmong(before, after, j)...)
		case was == nil && (j.Survivors != size || size == 0):
			wrong = append(wrong, fmt.Sprintf("Job %s begins to drain into %d members; there are %d", j.Name, j.Survivors, size))
		case was == nil && c != nil && c.Ordinal >= 0 && c.Ordinal < j.Survivors:
			wrong = append(wrong, fmt.Sprintf("Job %s drains member %d into %d members", j.Name, c.Ordinal, j.Survivors))
		case was != nil && before.Members.Exists && before.Members.Replicas != size && j.Survivors != size:
			wrong = append(wrong, fmt.Sprintf("%d members become %d while Job %s drains into %d", before.Members.Replicas, size, j.Name, j.Survivors))
		}
	}
	for i := range after.Pods {
		p := &after.Pods[i]
		if p.drainer() && !p.MayWrite && !p.Moves && p.AtWork && p.Survivors != after.Members.Replicas {
			wrong = append(wrong, fmt.Sprintf("drainer %s fills %d members; there are %d", p.Name, p.Survivors, after.Members.Replicas))
		}
	}
	return wrong
}

// begun tells whether the move may move items. A prepared move may when a pod of it was told to begin.
func (s *State) begun(j *Job) bool {
	return !j.Prepared || slices.ContainsFunc(s.Pods, func(p Pod) bool { return p.Job == j.UID && p.AtWork && !p.Waits })
}

// movedAmong tells what is wrong with an unfinished move.
func movedAmong(before, after *State, j *Job) []string {
	var wrong []string
	was, size := before.job(j.UID), after.Members.Replicas
	switch {
	case was == nil && j.Survivors > size:
		wrong = append(wrong, fmt.Sprintf("Job %s begins to move items among %d members; there are %d", j.Name, j.Survivors, size))
	case was != nil && 0 < size && size < j.Survivors && before.Members.Replicas >= j.Survivors && (before.begun(j) || after.begun(j)):
		wrong = append(wrong, fmt.Sprintf("%d members become %d while Job %s moves items among %d", before.Members.Replicas, size, j.Name, j.Survivors))
	}
	for i := range after.Jobs {
		if other := &after.Jobs[i]; !other.Moves && other.Unfinished && (was == nil || before.job(other.UID) == nil) {
			wrong = append(wrong, fmt.Sprintf("Job %s drains while Job %s moves items", other.Name, j.Name))
		}
	}
	return wrong
}

// OneUserPerVolume checks that no two pods are at work on one volume.
func OneUserPerVolume(_, after *State) []string {
	var wrong []string
	for i := range after.Pods {
		for k := range after.Pods[:i] {
			p, q := &after.Pods[i], &after.Pods[k]
			if p.AtWork && q.AtWork && after.share(p, q) {
				wrong = append(wrong, fmt.Sprintf("pods %s and %s are both on claim %s", q.Name, p.Name, p.Claim))
			}
		}
	}
	return wrong
}

// LostPodsAreNoScaleDown checks that a claim gets the leaving mark only if its ordinal was beyond a size that
// the spec once wanted, or if a person deleted the claim; and that only a claim with the mark is drained.
func LostPodsAreNoScaleDown(before, after *State) []string {
	wrong := wronglyLeft(before, after)
	for i := range after.Claims {
		c := &after.Claims[i]
		was := before.claim(c.UID)
		if c.Leaving && was != nil && !was.Leaving && c.Ordinal >= 0 && c.Ordinal < c.Smallest && !c.Deleting {
			wrong = append(wrong, fmt.Sprintf("claim %s has the leaving mark; no fewer than %d members were ever wanted", c.Name, c.Smallest))
		}
	}
	for i := range after.Jobs {
		j := &after.Jobs[i]
		c := after.claim(j.ClaimUID)
		switch {
		case before.job(j.UID) != nil || c == nil:
		case !j.Moves && !c.Leaving:
			wrong = append(wrong, fmt.Sprintf("Job %s drains claim %s, which is a member's", j.Name, c.Name))
		case j.Moves && c.Leaving && (c.Ordinal < 0 || after.Members.Replicas <= c.Ordinal):
			wrong = append(wrong, fmt.Sprintf("Job %s moves the items of the member of claim %s, which left", j.Name, c.Name))
		}
	}
	return wrong
}

// AtRestNothingIsWritten checks that nothing changes between two moments at rest.
func AtRestNothingIsWritten(before, after *State) []string {
	if !before.AtRest || !after.AtRest {
		return nil
	}
	var wrong []string
	for object, version := range after.Versions {
		if was, ok := before.Versions[object]; !ok || was != version {
			wrong = append(wrong, fmt.Sprintf("%s was written: version %q became %q", object, was, version))
		}
	}
	return wrong
}

// NothingIsStuck checks that at rest, the status of a Memcached or of a StatefulSetDrain names every claim that
// has to be released, and no claim has a finalizer for an owner that is deleted; and that the reclaim policy
// of each volume stays as it is.
func NothingIsStuck(before, after *State) []string {
	var wrong []string
	for _, v := range after.Volumes {
		if was := before.volume(v.Name); was != nil && was.Retained != v.Retained {
			wrong = append(wrong, fmt.Sprintf("the reclaim policy of volume %s has changed", v.Name))
		}
	}
	if !after.AtRest {
		return wrong
	}
	if after.Cluster.Exists && after.Cluster.Deleting {
		wrong = append(wrong, "the Memcached is deleted, and still there")
	}
	for i := range after.Drains {
		if d := &after.Drains[i]; d.Deleting {
			wrong = append(wrong, fmt.Sprintf("StatefulSetDrain %s is deleted, and still there", d.Name))
		}
	}
	for i := range after.Claims {
		c := &after.Claims[i]
		switch shown, owned := after.shown(c); {
		case !c.HasFinalizer:
		case !owned:
			wrong = append(wrong, fmt.Sprintf("claim %s has a finalizer for an owner that is gone", c.Name))
		case (c.Leaving || c.Deleting) && !slices.Contains(shown, c.Name):
			wrong = append(wrong, fmt.Sprintf("claim %s has a finalizer, and status does not say why", c.Name))
		}
	}
	return wrong
}

// ItemsLandOnTheirOwners checks that a drain gets all survivors in the order of the ring; that a prepared mover
// begins when clients are told of its ring; and that at rest clients find items where they look for them.
func ItemsLandOnTheirOwners(before, after *State) []string {
	var wrong []string
	for i := range after.Jobs {
		j := &after.Jobs[i]
		place := 0
		for n, server := range j.Servers {
			if j.Moves && place == n && strings.Contains(server, fmt.Sprintf("-%d.", n+1)) {
				place++ // the member before is out for its restart
			}
			if before.job(j.UID) == nil && !strings.Contains(server, fmt.Sprintf("-%d.", place)) {
				wrong = append(wrong, fmt.Sprintf("Job %s has %s in place %d of its ring", j.Name, server, n))
			}
			place++
		}
	}
	for i := range after.Pods {
		p := &after.Pods[i]
		if was := before.pod(p.UID); was != nil && was.Waits && !p.Waits && after.Told > 0 && after.owners() != p.Survivors {
			wrong = append(wrong, fmt.Sprintf("pod %s begins to give items to %d members; clients are told of %d", p.Name, p.Survivors, after.owners()))
		}
	}
	for i := range after.Items {
		item := &after.Items[i]
		if after.AtRest && item.Stored > 0 && item.Found[item.Owner] == 0 {
			wrong = append(wrong, fmt.Sprintf("%s is not on %s, its owner; found %v", item.Key, item.Owner, item.Found))
		}
	}
	return wrong
}

// statesAfter are the states that may follow each state of a ring change. A ring change that is given up goes
// back to stable, unless routers have stored items at the new owners: then the ring changes first.
var statesAfter = map[string][]string{
	contract.RingStable.String():  {contract.RingPrepare.String()},
	contract.RingPrepare.String(): {contract.RingSettle.String(), contract.RingStable.String()},
	contract.RingSettle.String():  {contract.RingMove.String()},
	contract.RingMove.String():    {contract.RingFinish.String(), contract.RingStable.String()},
	contract.RingFinish.String():  {contract.RingStable.String()},
}

// owners is how many members own keys.
func (s *State) owners() int32 {
	if s.Out > 0 {
		return s.Told - 1
	}
	return s.Told
}

// returnsWithItems names the member that was out for its restart and is not told to start empty before it returns.
func returnsWithItems(before, after *State) []string {
	if before.Out == 0 || after.Out == before.Out || after.Told == 0 || after.Routed == "" || after.ending() {
		return nil
	}
	for i := range after.Pods {
		if p := &after.Pods[i]; p.Ordinal == before.Out-1 && p.StartsEmpty == before.OutSerial {
			return nil
		}
	}
	return []string{fmt.Sprintf("member %d returns to the ring, and has not started empty", before.Out-1)}
}

// NoOldValueComesBack checks that no member serves from a volume whose member left while others stayed; that no
// member returns from a restart to the ring with items that it had before; that
// routers are told of no state of a ring change before the states that must precede it; and that at rest
// clients find no value older than the last one.
func NoOldValueComesBack(before, after *State) []string {
	wrong := returnsWithItems(before, after)
	if next := statesAfter[before.Routed]; before.Routed != after.Routed && next != nil && after.Routed != "" && !slices.Contains(next, after.Routed) {
		wrong = append(wrong, fmt.Sprintf("routers were in state %s, and are told of %s", before.Routed, after.Routed))
	}
	for i := range after.Pods {
		p := &after.Pods[i]
		was := before.pod(p.UID)
		begins := after.serves(p) && (was == nil || !before.serves(was))
		if begins && slices.Contains(before.DepartedVolumes, after.mounts(p)) {
			wrong = append(wrong, fmt.Sprintf("member %s is back on the volume that it left (claim %s)", p.Name, p.Claim))
		}
	}
	for i := range after.Items {
		item := &after.Items[i]
		if value := item.Found[item.Owner]; after.AtRest && value > 0 && value < item.Stored {
			wrong = append(wrong, fmt.Sprintf("%s: a client stored value %d, and finds value %d", item.Key, item.Stored, value))
		}
	}
	return wrong
}
