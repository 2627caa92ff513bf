package plan

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/ring"
)

// Warm has the request in spec.warmFrom, and the known facts about the source.
type Warm struct {
	// Holder stands for the Memcached, which carries the facts about its warming: the failed attempts, and a
	// person's request.
	Holder claims.Claim
	// Asked is the text of the person's request; empty for none. Repeats: the request is for another copy.
	Asked   string
	Repeats bool
	// Removed: the spec has no source any more, and what a person asked for is left.
	Removed bool
	// Source names the source in the record. Made is a hash of all that the next Job is made of.
	Source, Made string
	// Record is what was copied from this source.
	Record action.WarmRecord
	// NotThere says why the source can't be read now; empty if it can.
	NotThere string
	// Volumes: the source is claims. Left are those that were not copied yet, in order. CountsFirst: what all of them have
	// is counted before the first one is copied.
	Volumes     bool
	Left        []WarmClaim
	CountsFirst bool
	warmStep
	// HoldsList: clients of a new cluster are told of it when it is warm.
	HoldsList bool
	// OnMiss: routers ask the source for what they miss.
	OnMiss bool
	// Patience is how long after its first failure the source is given up; 0 for never.
	Patience time.Duration
	// Waits is why the Job has no drainer at work, and since when; zero if it has one.
	Waits claims.Wait
}

// WarmClaim is a claim of the source. Made and Counts are what Warm.Made is for the Jobs that copy and count it.
type WarmClaim struct {
	action.ClaimRef
	Made, Counts string
}

// warmStep is what is done next with claims: Volume is copied, or counted. More tells whether others follow it. made is
// what Warm.Made is for its Job.
type warmStep struct {
	Volume action.ClaimRef
	Counts bool
	More   bool
	made   string
	// counted are the claims that are counted already, and needs is what they have for each member, in MiB.
	counted []string
	needs   []int64
}

// step decides which claim is read next, for the ring of that name. What can't be found now ends no Job that has begun: the
// step is that of the Job then, or none if its claim is not left.
func (w Warm) step(ring string) *Warm {
	steps := w.steps(ring)
	at := 0
	if w.NotThere != "" {
		at = slices.IndexFunc(steps, func(s warmStep) bool { return s.made == w.Made })
	}
	if 0 <= at && at < len(steps) {
		w.warmStep, w.Made = steps[at], steps[at].made
	}
	return &w
}

// steps are all that may be done with claims, beginning with what is done next.
func (w *Warm) steps(ring string) (steps []warmStep) {
	if w.CountsFirst && len(w.Left) > 1 && len(w.Record.Claims) == 0 {
		var counted []string
		var needs []int64
		if w.Record.Ring == ring && w.onlyThese(w.Record.Counted) {
			counted, needs = w.Record.Counted, w.Record.Needs
		}
		rest := slices.DeleteFunc(slices.Clone(w.Left), func(c WarmClaim) bool { return slices.Contains(counted, ClaimHash(c.UID)) })
		for _, c := range rest {
			steps = append(steps, warmStep{Volume: c.ClaimRef, Counts: true, More: len(rest) > 1, made: c.Counts, counted: counted, needs: needs})
		}
	}
	for _, c := range w.Left {
		steps = append(steps, warmStep{Volume: c.ClaimRef, More: len(w.Left) > 1, made: c.Made})
	}
	return steps
}

// ofJob is the warming at the step of that Job; nil if the Job is of another source, or of an earlier copy. The ring is that
// of now: a count is of its own ring only, a copy counts whatever the ring is now.
func (w *Warm) ofJob(target string, r ring.Record) *Warm {
	then := *w
	steps := []warmStep{{made: w.Made}}
	if w.Volumes {
		steps = w.steps(r.Target())
	}
	for _, then.warmStep = range steps {
		if is := ring.IsWarmOf(target, then.made, w.Record.Jobs); is && (!then.Counts || target == ring.WarmTarget(then.made, w.Record.Jobs, r)) {
			return &then
		}
	}
	return nil
}

// allCopied tells whether each claim that is there was copied.
func (w *Warm) allCopied() bool { return w.Volumes && w.NotThere == "" && len(w.Left) == 0 }

// onlyThese tells whether all that were counted are left.
func (w *Warm) onlyThese(counted []string) bool {
	for _, hash := range counted {
		if !slices.ContainsFunc(w.Left, func(c WarmClaim) bool { return ClaimHash(c.UID) == hash }) {
			return false
		}
	}
	return true
}

// resume names a copy for its next attempt, by any ring, and whichever claims come meanwhile.
func (w *Warm) resume() string {
	if !w.Volumes || w.Counts {
		return ""
	}
	return fmt.Sprintf("%s/%s/%d", w.Holder.UID, w.Volume.UID, w.Record.Jobs-int32(len(w.Record.Claims)))
}

// open tells whether there is something to copy.
func (w *Warm) open() bool { return w.Record.Result == action.WarmOpen || w.Repeats }

// ClaimHash names a claim of the source in the record.
func ClaimHash(claim types.UID) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(claim))
	return fmt.Sprintf("%016x", h.Sum64())
}

// holds tells whether clients of a new cluster wait for it.
func (w *Warm) holds() bool {
	return w != nil && w.HoldsList && w.Record.Result == action.WarmOpen && w.Holder.MoveRequest != claims.Skip
}
