package claims

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
)

// End takes the finalizers off all claims, because their owner or the namespace goes (why). A volume
// that is being handed over is waited for, because it is bound to neither claim yet; movesNow is as in
// Given. unwanted tells whether a claim that is not drained is deleted, too. left has the claims as they
// are then.
func (f *Facts) End(why action.Release, movesNow string, unwanted func(*Claim) bool) (left *Facts, w Work) {
	then := *f
	then.Claims, then.Units = slices.Clone(f.Claims), map[types.UID][]Claim{}
	for uid, of := range maps.All(f.Units) {
		then.Units[uid] = slices.Clone(of)
	}
	for i := range then.Claims {
		if c := &then.Claims[i]; then.endOf(c, why, movesNow, unwanted(c), &w) {
			then.each(c, func(c *Claim, _ action.ClaimRef) { c.Finalizer = false })
			c.Finalizer = false
		}
	}
	return &then, w
}

// endOf plans the last steps of a claim, and tells whether they release it.
func (f *Facts) endOf(c *Claim, why action.Release, movesNow string, unwanted bool, w *Work) (released bool) {
	if why != action.ByNamespace {
		if aside := f.AsideOf(c); aside != nil || f.TakesOver(c) || f.anyOf(c, f.awaits) {
			w.HandOver(f, c, aside, movesNow)
			return false
		}
	}
	if why != action.ByNamespace || c.Finalizer {
		w.ReturnVolume(f, c)
	}
	drained := c.Receipt != nil && c.Receipt.AddsUp(c.sources()...) == nil
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

// awaits tells whether a volume is reserved for the claim, and its first claim is there. Kubernetes binds the two, even if a
// person has skipped both, so it must not be let go before.
func (f *Facts) awaits(c *Claim) bool {
	return c.Aside && c.Pending && !c.Deleting && f.anyClaim(func(first *Claim) bool {
		return first.Where == Reserved && first.HasVolumeToHandOver() && first.Volume == c.Volume && first.UID != c.UID
	})
}

// MayUnmark is asked before the leaving mark is taken off a claim whose member is wanted again. After
// the claim was deleted there is no way back. It needs Jobs and ClaimsWithDrainerPod.
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
