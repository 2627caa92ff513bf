package claims

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// Ending is how the claims of an owner end.
type Ending struct {
	// Why the owner or the namespace goes. MovesNow is as in Given.
	Why      action.Release
	MovesNow string
	// Unwanted tells whether a claim that is not drained is deleted, too. SetAside tells whether the volume
	// of a claim that is being deleted is set aside first, if possible: otherwise the volume goes with the
	// claim.
	Unwanted, SetAside func(*Claim) bool
}

// End removes the finalizers from all claims, because their owner or the namespace goes. End waits for a
// volume that is being handed over, because it is bound to neither claim yet. left has the claims after that;
// waits says what one of them waits for, and is empty if none waits.
func (f *Facts) End(e *Ending) (left *Facts, waits string, w Work) {
	then := *f
	then.Claims, then.Units = slices.Clone(f.Claims), map[types.UID][]Claim{}
	for uid, of := range maps.All(f.Units) {
		then.Units[uid] = slices.Clone(of)
	}
	for i := range then.Claims {
		c := &then.Claims[i]
		switch {
		case then.endOf(c, e, &w):
			then.each(c, func(c *Claim, _ action.ClaimRef) { c.Finalizer = false })
			c.Finalizer = false
		case waits != "" || !c.Deleting || !c.Finalizer:
		case c.InUse:
			waits = fmt.Sprintf("claim %s was deleted: when no pod uses it any more, another claim keeps its volume", c.Name)
		default:
			waits = fmt.Sprintf("claim %s was deleted: another claim is to keep its volume", c.Name)
		}
	}
	return &then, waits, w
}

// endOf plans the last steps of a claim, and tells whether they release it.
func (f *Facts) endOf(c *Claim, e *Ending, w *Work) (released bool) {
	why, drained := e.Why, c.Receipt != nil && c.Receipt.AddsUp(c.sources()...) == nil
	if why != action.ByNamespace {
		if aside := f.AsideOf(c); aside != nil || f.TakesOver(c) || f.anyOf(c, f.awaits) {
			w.HandOver(f, c, aside, e.MovesNow)
			return false
		}
		if c.Deleting && c.CanBeSetAside() && !drained && e.SetAside(c) {
			d := &decision{Facts: f, Given: &Given{Terms: &Terms{}}, c: c, job: f.JobOf(c.UID)}
			d.setAsideDeleted()
			w.Then(d.Work)
			return false
		}
	}
	if why != action.ByNamespace || c.Finalizer {
		w.ReturnVolume(f, c)
	}
	unwanted := e.Unwanted(c)
	f.each(c, func(c *Claim, ref action.ClaimRef) {
		if why != action.ByNamespace && (unwanted || drained) && !c.Deleting {
			w.Do(action.DeleteClaim{Claim: ref, Why: why})
		}
	})
	f.each(c, func(c *Claim, ref action.ClaimRef) {
		if c.Finalizer {
			w.Do(action.ReleaseClaim{Claim: ref, Why: why})
		}
	})
	return c.Finalizer
}

// awaits tells whether a volume is reserved for the claim, and its first claim is still there. Kubernetes
// binds the two even if a person has skipped both, so the claim must not be released before.
func (f *Facts) awaits(c *Claim) bool {
	return c.Aside && c.Pending && !c.Deleting && f.anyClaim(func(first *Claim) bool {
		return first.Where == Reserved && first.HasVolumeToHandOver() && first.Volume == c.Volume && first.UID != c.UID
	})
}

// MayUnmark is asked before the leaving mark is taken off a claim whose member is wanted again. After the
// claim was deleted there is no way back. MayUnmark needs Jobs and ClaimsWithDrainerPod.
func MayUnmark(live *Facts, c *Claim) error {
	job := live.JobOf(c.UID)
	switch {
	case c.LeavingSince.IsZero():
		return fmt.Errorf("claim %s has no leaving mark", c.Name)
	case c.Aside:
		return fmt.Errorf("claim %s has an earlier member's volume", c.Name)
	case c.Deleting:
		return fmt.Errorf("claim %s is being deleted", c.Name)
	case job != nil && job.Running():
		return fmt.Errorf("Job %s drains claim %s", job.Name, c.Name)
	}
	return unless(!slices.Contains(live.ClaimsWithDrainerPod, c.UID), "the pod of a drain of claim %s is still there", c.Name)
}
