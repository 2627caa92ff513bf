package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
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

// answers remembers what the API server said about a Memcached, where no watch
// tells when that changes, so that a reconcile in between asks for nothing.
type answers[T any] struct{ memory[answer[T]] }

type answer[T any] struct {
	cluster    types.UID
	generation int64
	at         time.Time
	said       T
}

// last is what it said last, and whether that is about this specification and
// younger than the interval.
func (a *answers[T]) last(c *cachev1alpha1.Memcached, now time.Time, interval time.Duration) (said T, fresh bool) {
	a.use(client.ObjectKeyFromObject(c), func(last *answer[T]) {
		said = last.said
		fresh = last.cluster == c.UID && last.generation == c.Generation && now.Before(last.at.Add(interval))
	})
	return said, fresh
}

func (a *answers[T]) note(c *cachev1alpha1.Memcached, now time.Time, said T) {
	a.use(client.ObjectKeyFromObject(c), func(last *answer[T]) { *last = answer[T]{c.UID, c.Generation, now, said} })
}
