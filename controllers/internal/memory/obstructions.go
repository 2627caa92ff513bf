package memory

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Obstruction is why the API server has refused a step about a claim, and until when none is tried
// again. Taken: an object of another owner has a name that it needs.
type Obstruction struct {
	Why   string
	Taken bool
	Until time.Time
}

// Obstructions remembers them, by the claim's UID, so that one claim keeps no place that another
// could have. No watch tells when they have passed: a step is tried again, and they are known until
// then, or for a while longer.
type Obstructions struct {
	kept Of[map[types.UID]Obstruction]
}

// Note one.
func (o *Obstructions) Note(cluster client.ObjectKey, claim types.UID, why Obstruction) {
	o.kept.Use(cluster, func(kept *map[types.UID]Obstruction) {
		known := map[types.UID]Obstruction{claim: why}
		maps.Copy(known, *kept)
		known[claim] = why
		*kept = known
	})
}

// remembersRefusal is for how long an obstruction is known after the time to try again.
const remembersRefusal = time.Minute

// Passed notes that a step about the claim was taken.
func (o *Obstructions) Passed(cluster client.ObjectKey, claim types.UID) {
	o.kept.Use(cluster, func(kept *map[types.UID]Obstruction) {
		if _, is := (*kept)[claim]; is {
			known := maps.Clone(*kept)
			delete(known, claim)
			*kept = known
		}
	})
}

// Known are those that have not passed; nil if there are none.
func (o *Obstructions) Known(cluster client.ObjectKey, now time.Time) (known map[types.UID]Obstruction) {
	if o == nil {
		return nil
	}
	o.kept.Use(cluster, func(kept *map[types.UID]Obstruction) {
		maps.DeleteFunc(*kept, func(_ types.UID, why Obstruction) bool { return !why.Until.Add(remembersRefusal).After(now) })
		if len(*kept) > 0 {
			known = maps.Clone(*kept)
		}
	})
	return known
}

// Forget a Memcached that is gone.
func (o *Obstructions) Forget(cluster client.ObjectKey) { o.kept.Forget(cluster) }
