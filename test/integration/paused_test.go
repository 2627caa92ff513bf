package integration

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// saysPaused returns nil if status says that the operator has seen the pause, and the present spec.
func (w *world) saysPaused() error {
	m := w.memcached()
	c := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionProgressing)
	if c == nil || c.Reason != cachev1alpha1.ReasonPaused || c.ObservedGeneration != m.Generation {
		return fmt.Errorf("generation %d, Progressing is %s", m.Generation, asJSON(c))
	}
	return nil
}

// nothingButStatus fails if the operator has written anything but the status since then.
func (w *world) nothingButStatus(since int) {
	w.Helper()
	w.always("nothing but status is written", func() error {
		w.reconcile()
		for _, write := range w.journal.Writes()[since:] {
			if write.Resource != "memcacheds/status" {
				return fmt.Errorf("%s", write)
			}
		}
		return nil
	})
}

func TestOfAPausedClusterNothingButStatusIsWritten(t *testing.T) {
	t.Parallel()
	for what, m := range map[string]*apitest.MemcachedBuilder{
		"with storage":    apitest.MakeMemcached(name).Storage("128Mi"),
		"without storage": apitest.MakeMemcached(name),
	} {
		t.Run(what, func(t *testing.T) {
			if what != "with storage" {
				tier.Second(t, "TestOfAPausedClusterNothingButStatusIsWritten")
			}
			w := newWorld(t)
			w.create(m.Size(2).Obj())
			w.settled(2)
			w.quiet()
			servers := w.memcached().Status.Servers
			w.change(w.memcached(), `{"spec":{"paused":true}}`)
			w.eventually("status says so", w.saysPaused)
			before := len(w.journal.Writes())

			w.change(w.memcached(), `{"spec":{"size":1,"memory":"80Mi","podDisruptionBudget":{"enabled":false}}}`)
			w.eventually("the new spec is seen", w.saysPaused)
			for _, claim := range w.claims() {
				w.change(&claim, `{"metadata":{"labels":{"cache.example.com/cluster":null}}}`)
			}
			for _, set := range w.statefulSets() {
				w.change(&set, `{"metadata":{"labels":{"cache.example.com/cluster":null}}}`)
			}
			w.nothingButStatus(before)
			equal(w, "members in status", w.memcached().Status.Size, int32(2))
			equal(w, "servers in status", w.memcached().Status.Servers, servers)

			w.change(w.memcached(), `{"spec":{"paused":false}}`)
			w.settled(1)
		})
	}
}

func TestAPausedClusterIsNotBegun(t *testing.T) {
	tier.Second(t, "TestOfAPausedClusterNothingButStatusIsWritten")
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Storage("128Mi").With(func(s *cachev1alpha1.MemcachedSpec) { s.Paused = true }).Obj())
	w.eventually("status says so", w.saysPaused)
	w.nothingButStatus(0)
	w.delete(w.memcached())
	w.eventually("it is gone", w.memcachedGone)
}

// The drainer goes on, and its receipt waits.
func TestADrainOfAPausedClusterIsTakenUpLater(t *testing.T) {
	tier.Second(t, "TestOfAPausedClusterNothingButStatusIsWritten")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, player.Hang)
	claim := w.claim(2)
	w.scale(2)
	w.eventually("a drainer", func() error { return w.drainIs(2, cachev1alpha1.DrainStarting, "") })
	w.change(w.memcached(), `{"spec":{"paused":true}}`)
	w.eventually("status says so", w.saysPaused)
	before := len(w.journal.Writes())
	kubes.Play(w.namespace, player.Succeed(10))
	w.nothingButStatus(before)
	w.change(w.memcached(), `{"spec":{"paused":null}}`)
	w.claimGone(2, claim.UID)
	w.settled(2)
}

func TestAPausedClusterCanBeDeleted(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).WhenDeleted(cachev1alpha1.DeletionDelete), 2)
	w.change(w.memcached(), `{"spec":{"paused":true}}`)
	w.eventually("status says so", w.saysPaused)
	w.delete(w.memcached())
	w.eventually("it is gone", w.memcachedGone)
	w.eventually("its claims are gone", func() error {
		if claims := w.claims(); len(claims) != 0 {
			return fmt.Errorf("%d are left", len(claims))
		}
		return nil
	})
}

func (w *world) memcachedGone() error {
	if w.memcached() != nil {
		return errors.New("it is there")
	}
	return nil
}
