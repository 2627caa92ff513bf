package remembered

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names remembers the names of the claims and Jobs that each Memcached had. A cache drops an object
// that has lost its label just like one that is gone; a live read by name tells the difference. A
// name is kept until the API server has said that no object has it.
type Names struct {
	kept ByObject[map[string]map[string]struct{}]
}

// mostNames is how many names of a kind are remembered for a Memcached: more than it can have
// members, and volumes of earlier members.
const mostNames = 1024

// Note remembers the names of a kind that the cache has.
func (n *Names) Note(cluster client.ObjectKey, kind string, names []string) {
	if n == nil || len(names) == 0 {
		return
	}
	n.kept.Use(cluster, func(kept *map[string]map[string]struct{}) {
		if *kept == nil {
			*kept = map[string]map[string]struct{}{}
		}
		known := (*kept)[kind]
		if known == nil {
			known = map[string]struct{}{}
			(*kept)[kind] = known
		}
		for _, name := range names {
			if len(known) < mostNames {
				known[name] = struct{}{}
			}
		}
	})
}

// Gone forgets names that no object has, by a live read.
func (n *Names) Gone(cluster client.ObjectKey, kind string, names ...string) {
	if n == nil || len(names) == 0 {
		return
	}
	n.kept.Use(cluster, func(kept *map[string]map[string]struct{}) {
		for _, name := range names {
			delete((*kept)[kind], name)
		}
	})
}

// Known returns the names of a kind, in any order.
func (n *Names) Known(cluster client.ObjectKey, kind string) (known []string) {
	if n != nil {
		n.kept.Use(cluster, func(kept *map[string]map[string]struct{}) { known = slices.Collect(maps.Keys((*kept)[kind])) })
	}
	return known
}

// Forget forgets a Memcached that is gone.
func (n *Names) Forget(cluster client.ObjectKey) { n.kept.Forget(cluster) }
