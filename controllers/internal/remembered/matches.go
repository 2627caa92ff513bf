package remembered

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Matches remembers which objects were found to be as the spec wants them, with the versions of
// object and spec. The comparison takes most of a reconcile's time, because it extracts the fields
// that we have applied.
type Matches struct{ kept ByObject[map[string]match] }

// match has the versions that were compared.
type match struct {
	cluster, object types.UID
	// generation is the Memcached's, version the object's resourceVersion.
	generation int64
	version    string
	variant    int32
}

func matchOf(c client.Object, object metav1.Object, variant int32) match {
	return match{
		cluster: c.GetUID(), generation: c.GetGeneration(),
		object: object.GetUID(), version: object.GetResourceVersion(),
		variant: variant,
	}
}

// Has tells whether the Memcached's object of this kind matched, and neither has changed
// since. The object also depends on variant, a number of members or servers.
func (m *Matches) Has(c client.Object, kind string, object metav1.Object, variant int32) (has bool) {
	m.kept.Use(client.ObjectKeyFromObject(c), func(found *map[string]match) {
		last, ok := (*found)[kind]
		has = ok && last == matchOf(c, object, variant)
	})
	return has
}

// Knows tells whether an object of this kind has matched, in whatever version, and was not dropped since.
func (m *Matches) Knows(c client.Object, kind string) (knows bool) {
	m.kept.Use(client.ObjectKeyFromObject(c), func(found *map[string]match) {
		last, ok := (*found)[kind]
		knows = ok && last.cluster == c.GetUID()
	})
	return knows
}

// Note remembers that the object matches.
func (m *Matches) Note(c client.Object, kind string, object metav1.Object, variant int32) {
	m.kept.Use(client.ObjectKeyFromObject(c), func(found *map[string]match) {
		if *found == nil {
			*found = map[string]match{}
		}
		(*found)[kind] = matchOf(c, object, variant)
	})
}

// Drop forgets the objects of these kinds.
func (m *Matches) Drop(c client.Object, which func(kind string) bool) {
	m.kept.Use(client.ObjectKeyFromObject(c), func(found *map[string]match) {
		maps.DeleteFunc(*found, func(kind string, _ match) bool { return which(kind) })
	})
}

// Forget forgets a Memcached that is gone.
func (m *Matches) Forget(key client.ObjectKey) { m.kept.Forget(key) }
