package remembered

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims"
)

// Obstructions remembers the obstruction of each claim, by its UID, so that a claim whose steps are
// refused doesn't take the turn of another claim. No watch reports the end of an obstruction. An obstruction is
// known until a step succeeds, or for remembersRefusal after the time to try again.
type Obstructions struct {
	kept ByObject[map[types.UID]claims.Obstruction]
	made ByObject[map[types.UID]jobs]
}

// jobs are the Jobs in a row that were made for a claim, and that the operator has not deleted itself.
type jobs struct {
	number int32
	last   time.Time
}

// remembersJobs is how long the Jobs of a claim are counted after the last one was made.
const remembersJobs = 2 * time.Hour

// Made counts a Job that was made for the claim.
func (o *Obstructions) Made(cluster client.ObjectKey, claim types.UID, now time.Time) {
	if o == nil {
		return
	}
	o.made.Use(cluster, func(made *map[types.UID]jobs) {
		if *made == nil {
			*made = map[types.UID]jobs{}
		}
		maps.DeleteFunc(*made, func(_ types.UID, j jobs) bool { return j.last.Add(remembersJobs).Before(now) })
		(*made)[claim] = jobs{number: (*made)[claim].number + 1, last: now}
	})
}

// MadeBefore returns how many Jobs in a row were made for the claim, and when the last one was.
func (o *Obstructions) MadeBefore(cluster client.ObjectKey, claim types.UID) (number int32, last time.Time) {
	if o == nil {
		return 0, last
	}
	o.made.Use(cluster, func(made *map[types.UID]jobs) { number, last = (*made)[claim].number, (*made)[claim].last })
	return number, last
}

// Ended notes that the operator knows how the last Job of the claim has ended, or has ended it.
func (o *Obstructions) Ended(cluster client.ObjectKey, claim types.UID) {
	if o == nil {
		return
	}
	o.made.Use(cluster, func(made *map[types.UID]jobs) { delete(*made, claim) })
}

// Note remembers an obstruction.
func (o *Obstructions) Note(cluster client.ObjectKey, claim types.UID, why claims.Obstruction) {
	o.kept.Use(cluster, func(kept *map[types.UID]claims.Obstruction) {
		known := map[types.UID]claims.Obstruction{claim: why}
		maps.Copy(known, *kept)
		known[claim] = why
		*kept = known
	})
}

// remembersRefusal is how long an obstruction is known after the time to try again.
const remembersRefusal = time.Minute

// Passed notes that a step about the claim has succeeded.
func (o *Obstructions) Passed(cluster client.ObjectKey, claim types.UID) {
	o.kept.Use(cluster, func(kept *map[types.UID]claims.Obstruction) {
		if _, is := (*kept)[claim]; is {
			known := maps.Clone(*kept)
			delete(known, claim)
			*kept = known
		}
	})
}

// Known returns the obstructions that have not passed; nil if there are none.
func (o *Obstructions) Known(cluster client.ObjectKey, now time.Time) (known map[types.UID]claims.Obstruction) {
	if o == nil {
		return nil
	}
	o.kept.Use(cluster, func(kept *map[types.UID]claims.Obstruction) {
		maps.DeleteFunc(*kept, func(_ types.UID, why claims.Obstruction) bool { return !why.Until.Add(remembersRefusal).After(now) })
		if len(*kept) > 0 {
			known = maps.Clone(*kept)
		}
	})
	return known
}

// Forget forgets a Memcached that is gone.
func (o *Obstructions) Forget(cluster client.ObjectKey) {
	o.kept.Forget(cluster)
	o.made.Forget(cluster)
}
