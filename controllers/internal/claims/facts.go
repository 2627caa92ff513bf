package claims

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Facts are the observed facts about claims, and about their users. Nothing changes Facts.
type Facts struct {
	Now time.Time
	// Pods has the ordinals of the member pods that exist, in any phase.
	Pods []int32
	// NotEnded has why Kubernetes can't delete the pods of members that are to go, by their ordinals.
	NotEnded map[int32]string
	// Claims in any order. Units has the claims of units that have several (Together).
	Claims []Claim
	Units  map[types.UID][]Claim
	// Obstructed has the claims whose last step the API server refused, by their UIDs.
	Obstructed map[types.UID]Obstruction
	// Jobs drain claims.
	Jobs []Job
	// Drainers are the drainers that have not ended, even if their Job is gone.
	Drainers []Drainer
	// ClaimsWithDrainerPod has the UIDs of the claims that a drainer's pod mounts, or whose
	// member's items it moves.
	ClaimsWithDrainerPod []types.UID
	// ClaimsWithDrainerAtWork has those of them whose drain runs or has succeeded.
	ClaimsWithDrainerAtWork []types.UID
}

// Claim returns the claim of this UID, or nil.
func (f *Facts) Claim(uid types.UID) *Claim {
	i := slices.IndexFunc(f.Claims, func(c Claim) bool { return c.UID == uid })
	if i < 0 {
		return nil
	}
	return &f.Claims[i]
}

// JobOf returns the Job that drains the claim, or nil.
func (f *Facts) JobOf(claim types.UID) *Job {
	for i := range f.Jobs {
		if f.Jobs[i].ClaimUID == claim {
			return &f.Jobs[i]
		}
	}
	return nil
}

// PodExists tells whether the pod of the member exists.
func (f *Facts) PodExists(ordinal int32) bool { return slices.Contains(f.Pods, ordinal) }

// MemberExists tells whether the pod of the claim's member still exists. A pod never uses an aside
// claim.
func (f *Facts) MemberExists(c *Claim) bool { return !c.Aside && f.PodExists(c.Ordinal) }

// ShutsDown says that the pod of a member that is to go still exists.
func (f *Facts) ShutsDown(ordinal int32) string {
	if why := f.NotEnded[ordinal]; why != "" {
		return fmt.Sprintf("member %d is not shut down: %s", ordinal, why)
	}
	return fmt.Sprintf("member %d is still shutting down", ordinal)
}

// LowestMarked returns the claim with a leaving mark that has the lowest ordinal, or nil.
// LowestMarked leaves out aside claims, which block no member.
func (f *Facts) LowestMarked() *Claim {
	var lowest *Claim
	for i := range f.Claims {
		if c := &f.Claims[i]; !c.LeavingSince.IsZero() && !c.Aside && (lowest == nil || c.Ordinal < lowest.Ordinal) {
			lowest = c
		}
	}
	return lowest
}

// RunningDrain returns the Job of a drain whose pod may be at work, or nil.
func (f *Facts) RunningDrain() *Job {
	for i := range f.Jobs {
		if f.Jobs[i].MayRun() {
			return &f.Jobs[i]
		}
	}
	return nil
}

// LingeringDrainer names the pod of a drain that has not ended although its Job is gone, usually
// because a person skipped the drain. Kubernetes keeps the claim until the pod ends, and the
// drainer still adds items by its own ring.
func (f *Facts) LingeringDrainer() (pod string) {
	for _, d := range f.Drainers {
		c, job := f.Claim(d.ClaimUID), f.JobOf(d.ClaimUID)
		if !d.Mover() && c != nil && !c.LeavingSince.IsZero() && (job == nil || !job.MayRun()) {
			return d.Pod
		}
	}
	return ""
}

// DrainMayRun tells whether a drain may be at work.
func (f *Facts) DrainMayRun() bool { return f.RunningDrain() != nil || f.LingeringDrainer() != "" }

// DrainContinues tells whether the claim's drain continues although the claim is being deleted: a
// running drainer keeps its mount, and a drainer that succeeded has left its receipt.
func (f *Facts) DrainContinues(c *Claim) bool {
	job := f.JobOf(c.UID)
	switch {
	case job == nil:
		return false
	case job.State == JobActive || job.Deleting:
		return slices.Contains(f.ClaimsWithDrainerAtWork, c.UID)
	}
	return job.State == JobComplete && job.drained(c) == nil
}

// DrainDue tells whether the volume of a departed member with this ordinal or a higher one is about
// to be drained. Until it has been drained, no other member leaves. A drain that failed is tried
// again in its turn.
func (f *Facts) DrainDue(t *Terms, from int32) bool {
	return slices.ContainsFunc(f.Claims, func(c Claim) bool {
		job := f.JobOf(c.UID)
		return t.ToDrain(&c) && !f.IsObstructed(&c) && c.Ordinal >= from && !c.LeavingSince.IsZero() && !c.Aside && !c.Deleting && c.Volume != "" && c.Receipt == nil &&
			!c.KeptByAPerson() && (job == nil || job.Running())
	})
}

// DrainsByItself tells whether the volume of a departed member will be drained without action by a
// person.
func (f *Facts) DrainsByItself(t *Terms, c *Claim) bool {
	job := f.JobOf(c.UID)
	switch {
	case !t.ToDrain(c), c.KeptByAPerson(), f.Stranded(c), f.IsObstructed(c) && (job == nil || !job.Running()):
		return false
	case c.Deleting && !c.CanBeSetAside() && !f.DrainContinues(c):
		return false // the volume can't be mounted any more
	}
	return job == nil || job.Running() || job.State == JobComplete || job.Retryable()
}

// AsideOf returns the claim that takes over the volume of a claim that is being deleted, or nil. An
// aside claim that was deleted itself counts as long as it has the volume, or the volume waits for
// the next one. A unit has one only if each of its volumes has such a claim.
func (f *Facts) AsideOf(c *Claim) (aside *Claim) {
	if !c.HasVolumeToHandOver() {
		return nil
	}
	missing := f.anyOf(c, func(c *Claim) bool {
		unit, _ := f.takerOf(c)
		if aside == nil {
			aside = unit
		}
		return unit == nil
	})
	if missing {
		return nil
	}
	return aside
}

// takerOf returns the claim that takes over the volume of this one claim, and its unit; nil if there
// is none.
func (f *Facts) takerOf(c *Claim) (unit, taker *Claim) {
	if !c.HasVolumeToHandOver() {
		return nil, nil
	}
	for i := range f.Claims {
		u := &f.Claims[i]
		f.anyOf(u, func(a *Claim) bool {
			handsOn := a.Where == Reserved && a.AsideName != c.Name
			takes := a.Aside && a.Volume == c.Volume && a.UID != c.UID && (!a.Deleting || a.Where == Here || handsOn) && (!a.Pending || a.Name == c.AsideName)
			if takes && (taker == nil || taker.Deleting) {
				unit, taker = u, a
			}
			return takes
		})
	}
	return unit, taker
}

// TakesOver tells whether the claim takes over a volume whose first claim is not released yet. Until then the
// aside claim stays. If a person skips the aside claim before it has the volume, it still waits while the
// volume is reserved for it, because the first claim could hand the volume to no other claim. The aside claim
// doesn't wait if the first claim was skipped, too. If one claim of a unit was deleted itself, the volumes of
// all are set aside once more.
func (f *Facts) TakesOver(c *Claim) bool { return !c.Deleting && f.anyOf(c, f.takesOver) }

func (f *Facts) takesOver(c *Claim) bool {
	return c.Aside && !c.Deleting && f.anyClaim(func(other *Claim) bool {
		givenUp := c.Pending && c.Request == Skip && (other.Request == Skip || other.Where != Reserved)
		return !givenUp && other.HasVolumeToHandOver() && other.Volume == c.Volume && other.UID != c.UID
	})
}

// Stranded tells whether the claim waits for a volume that no claim will ever hand over. A bound
// claim that lost its volume looks the same.
func (f *Facts) Stranded(c *Claim) bool {
	return f.anyOf(c, func(c *Claim) bool { return c.Aside && c.Pending && !f.takesOver(c) })
}

// pendingAsideOf returns the claim that is to take over the volume of a claim that is being
// deleted, and doesn't have the volume yet; or nil.
func (f *Facts) pendingAsideOf(c *Claim) *Claim {
	i := slices.IndexFunc(f.Claims, func(unit Claim) bool {
		return unit.Aside && f.anyOf(&unit, func(a *Claim) bool {
			return a.Pending && f.anyOf(c, func(c *Claim) bool { return a.Name == c.AsideName && a.Volume == c.Volume })
		})
	})
	if i < 0 {
		return nil
	}
	return &f.Claims[i]
}

// IsObstructed tells whether the API server has refused the last step about the claim, or about the
// claim whose volume it takes over.
func (f *Facts) IsObstructed(c *Claim) bool {
	if why, is := f.Obstructed[c.UID]; is || len(f.Obstructed) == 0 || !c.Aside {
		return is && (!why.Vanished || f.JobOf(c.UID) == nil)
	}
	return slices.ContainsFunc(f.Claims, func(first Claim) bool {
		_, is := f.Obstructed[first.UID]
		return is && first.UID != c.UID && first.HasVolumeToHandOver() && f.anyOf(&first, func(first *Claim) bool {
			return f.anyOf(c, func(c *Claim) bool { return first.Volume == c.Volume })
		})
	})
}

// RefusedNow tells why no step about the claim is tried now.
func (f *Facts) RefusedNow(c *Claim) (why Obstruction, is bool) {
	why, is = f.NoJobNow(c)
	return why, is && !why.Vanished
}

// NoJobNow tells why no Job is made for the claim now: after several Jobs have vanished, the next one comes
// later, unless a person asks for it. Other steps go on.
func (f *Facts) NoJobNow(c *Claim) (why Obstruction, is bool) {
	why, is = f.Obstructed[c.UID]
	asked := c.Request == Retry || c.MoveRequest == Retry
	return why, is && why.Until.After(f.Now) && (!why.Vanished || !asked)
}

// Slots is how many more drains may begin, if that many may run at once.
func (f *Facts) Slots(parallelism int32) int {
	slots := int(parallelism)
	for i := range f.Jobs {
		if f.Jobs[i].Running() {
			slots--
		}
	}
	return slots
}

// Orphans deletes Jobs whose claim is gone, even running ones: their receipt could not be
// recorded, and the size could not change before they end.
func (f *Facts) Orphans() (w Work) {
	for i := range f.Jobs {
		if j := &f.Jobs[i]; f.Claim(j.ClaimUID) == nil {
			w.DeleteJob(j, "its claim is gone")
		}
	}
	return w
}

// Finalizers adds the finalizer to claims that lack it: a StatefulSet of a Memcached that was deleted
// left them, they came back from a snapshot, or a person has removed it. after has the claims as they
// are then.
func (f *Facts) Finalizers(t *Terms) (after []Claim, w Work) {
	after = slices.Clone(f.Claims)
	for i := range after {
		c := &after[i]
		wanted := c.LeavingSince.IsZero() || t.ToDrain(c)
		if c.Finalizer || c.Deleting || !wanted {
			continue
		}
		if why, is := f.RefusedNow(c); is {
			w.Withhold(c, why)
			continue
		}
		w.Do(action.AddClaimFinalizer{Claim: c.Ref()})
		c.Finalizer = true
	}
	return after, w
}

// NextLeft is the number of the next leaving mark. Any client may have written the present numbers,
// so ring.LastSerial bounds them.
func NextLeft(claims []Claim) int64 {
	numbers := make([]int64, 0, len(claims))
	for i := range claims {
		numbers = append(numbers, claims[i].Left)
	}
	return ring.LastSerial(numbers...) + 1
}
