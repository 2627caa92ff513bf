package controllers

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// matches remembers which objects were found to be as the spec wants them, by
// the versions of both. To find that out takes most of a reconcile's time: what
// we have applied is extracted field by field.
type matches struct {
	mu    sync.Mutex
	found map[client.ObjectKey]map[string]match
}

// match names what was compared: the same versions compare the same.
type match struct {
	cluster, object types.UID
	// generation of the Memcached, version of the object.
	generation int64
	version    string
	replicas   int32
}

func matchOf(o *observed, object metav1.Object, replicas int32) match {
	return match{
		cluster: o.cluster.UID, generation: o.cluster.Generation,
		object: object.GetUID(), version: object.GetResourceVersion(),
		replicas: replicas,
	}
}

// holds tells whether the object of this kind was found to match, and neither
// has changed since.
func (m *matches) holds(o *observed, kind string, object metav1.Object, replicas int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.found[client.ObjectKeyFromObject(o.cluster)][kind]
	return ok && found == matchOf(o, object, replicas)
}

// note keeps that the object matches.
func (m *matches) note(o *observed, kind string, object metav1.Object, replicas int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(o.cluster)
	if m.found == nil {
		m.found = map[client.ObjectKey]map[string]match{}
	}
	if m.found[key] == nil {
		m.found[key] = map[string]match{}
	}
	m.found[key][kind] = matchOf(o, object, replicas)
}

// forget a Memcached that is gone.
func (m *matches) forget(key client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.found, key)
}
