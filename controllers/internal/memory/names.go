package memory

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names remembers the names of the claims and Jobs that each Memcached had. A cache drops an object
// that has lost its label as it drops one that is gone; its name tells which. A name is kept until
// the API server has said that nothing has it.
type Names struct {
	kept Of[map[string]map[string]struct{}]
}

// mostNames of a kind are remembered of a Memcached: more than it can have members and volumes of
// earlier ones.
const mostNames = 1024

// Note the names of a kind that the cache has.
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

// Gone notes that the API server has none of these.
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

// Known are the names of a kind, in any order.
func (n *Names) Known(cluster client.ObjectKey, kind string) (known []string) {
	if n != nil {
		n.kept.Use(cluster, func(kept *map[string]map[string]struct{}) { known = slices.Collect(maps.Keys((*kept)[kind])) })
	}
	return known
}

// Forget a Memcached that is gone.
func (n *Names) Forget(cluster client.ObjectKey) { n.kept.Forget(cluster) }
