package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// matches remembers which objects were found to be as the spec wants them, by
// the versions of both. To find that out takes most of a reconcile's time: what
// we have applied is extracted field by field.
type matches struct{ memory[map[string]match] }

// match names what was compared: the same versions compare the same.
type match struct {
	cluster, object types.UID
	// generation of the Memcached, version of the object.
	generation int64
	version    string
	// variant is what the object depends on besides: a number of members, or of
	// servers.
	variant int32
}

func matchOf(o *observed, object metav1.Object, variant int32) match {
	return match{
		cluster: o.cluster.UID, generation: o.cluster.Generation,
		object: object.GetUID(), version: object.GetResourceVersion(),
		variant: variant,
	}
}

// holds tells whether the object of this kind was found to match, and neither
// has changed since.
func (m *matches) holds(o *observed, kind string, object metav1.Object, variant int32) (holds bool) {
	m.use(client.ObjectKeyFromObject(o.cluster), func(found *map[string]match) {
		last, ok := (*found)[kind]
		holds = ok && last == matchOf(o, object, variant)
	})
	return holds
}

// note keeps that the object matches.
func (m *matches) note(o *observed, kind string, object metav1.Object, variant int32) {
	m.use(client.ObjectKeyFromObject(o.cluster), func(found *map[string]match) {
		if *found == nil {
			*found = map[string]match{}
		}
		(*found)[kind] = matchOf(o, object, variant)
	})
}
