package memory

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Obstruction is why the Job of a claim could not be made, and until when it isn't tried again.
// Taken: somebody else's Job has its name.
type Obstruction struct {
	Why   string
	Taken bool
	Until time.Time
}

// Obstructions remembers them, by the claim's UID, so that one claim keeps no place that another
// could have. They expire, because no watch tells when they have passed.
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

// Known are those that have not expired; nil if there are none.
func (o *Obstructions) Known(cluster client.ObjectKey, now time.Time) (known map[types.UID]Obstruction) {
	if o == nil {
		return nil
	}
	o.kept.Use(cluster, func(kept *map[types.UID]Obstruction) {
		maps.DeleteFunc(*kept, func(_ types.UID, why Obstruction) bool { return !why.Until.After(now) })
		if len(*kept) > 0 {
			known = maps.Clone(*kept)
		}
	})
	return known
}

// Forget a Memcached that is gone.
func (o *Obstructions) Forget(cluster client.ObjectKey) { o.kept.Forget(cluster) }
