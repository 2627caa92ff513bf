// Package remembered keeps facts about each Memcached between reconciles. These facts only save work or time,
// and are not needed for correctness: an operator that has just started has none.
package remembered

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// ByObject keeps a T for each object. Its zero value is ready to use, and safe for concurrent use.
type ByObject[T any] struct {
	mu sync.Mutex
	of map[client.ObjectKey]T
}

// Use calls do with the T of an object, at first its zero value. do may change it, and must not
// block, because other reconciles wait.
func (m *ByObject[T]) Use(key client.ObjectKey, do func(*T)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.of[key]
	do(&kept)
	if m.of == nil {
		m.of = map[client.ObjectKey]T{}
	}
	m.of[key] = kept
}

// Forget forgets an object that is gone.
func (m *ByObject[T]) Forget(key client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, key)
}

// Answers remembers an answer of the API server about each Memcached, if no watch reports when it
// changes, so that not every reconcile asks again.
type Answers[T any] struct{ kept ByObject[answer[T]] }

type answer[T any] struct {
	cluster    types.UID
	generation int64
	at         time.Time
	said       T
}

// Last is the last answer. fresh: the answer is about this generation of the spec, and younger than
// the interval.
func (a *Answers[T]) Last(c *cachev1alpha1.Memcached, now time.Time, interval time.Duration) (said T, fresh bool) {
	a.kept.Use(client.ObjectKeyFromObject(c), func(last *answer[T]) {
		said = last.said
		fresh = last.cluster == c.UID && last.generation == c.Generation && now.Before(last.at.Add(interval))
	})
	return said, fresh
}

// Note remembers the API server's answer about the present generation of the Memcached.
func (a *Answers[T]) Note(c *cachev1alpha1.Memcached, now time.Time, said T) {
	a.kept.Use(client.ObjectKeyFromObject(c), func(last *answer[T]) { *last = answer[T]{c.UID, c.Generation, now, said} })
}

// Forget forgets an object that is gone.
func (a *Answers[T]) Forget(key client.ObjectKey) { a.kept.Forget(key) }
