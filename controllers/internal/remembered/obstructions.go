package remembered

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/controllers/internal/claims"
)

// Obstructions remembers the obstruction of each claim, by its UID, so that a claim whose steps are
// refused doesn't take the turn of another claim. No watch reports the end of an obstruction. It is
// known until a step succeeds, or for remembersRefusal after the time to try again.
type Obstructions struct {
	kept Of[map[types.UID]claims.Obstruction]
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
func (o *Obstructions) Forget(cluster client.ObjectKey) { o.kept.Forget(cluster) }
