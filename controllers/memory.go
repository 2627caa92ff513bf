package controllers

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory keeps something of each Memcached from one reconcile to the next.
type memory[T any] struct {
	mu sync.Mutex
	of map[client.ObjectKey]T
}

// use what is kept of a Memcached, the zero value at first, and keep what it has
// become.
func (m *memory[T]) use(key client.ObjectKey, do func(*T)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.of[key]
	do(&kept)
	if m.of == nil {
		m.of = map[client.ObjectKey]T{}
	}
	m.of[key] = kept
}

// forget a Memcached that is gone.
func (m *memory[T]) forget(key client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}
