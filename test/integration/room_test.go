package integration

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/tier"
)

// full makes members say that all of their memory is used, until they hold less.
func (w *world) full() (held *atomic.Pointer[controllers.Holds]) {
	held = &atomic.Pointer[controllers.Holds]{}
	held.Store(&controllers.Holds{Items: 1000, Bytes: 64 << 20, Limit: 64 << 20})
	w.memory = func(context.Context, string) (controllers.Holds, error) { return *held.Load(), nil }
	return held
}

// pagesOf has the contents of a member of 64Mi in this many pages of one size of items, 4 KB each, beside a
// page of each of 38 other sizes.
func pagesOf(n int64) *controllers.Holds {
	const perPage, chunk, item = 230, 4544, 4070
	h := &controllers.Holds{Items: n * perPage, Bytes: n * perPage * item, Limit: 64 << 20, Classes: map[int64]controllers.Class{
		chunk: {PerPage: perPage, Pages: n, Chunks: n * perPage, Items: n * perPage, Bytes: n * perPage * item},
	}}
	for i := range int64(38) {
		h.Classes[96+8*i] = controllers.Class{PerPage: 1 << 20 / (96 + 8*i), Pages: 1}
	}
	return h
}

func TestScaleDownIntoTooLittleRoomSaysSoBeforeAnythingMoves(t *testing.T) {
	w := newNamespace(t)
	w.full()
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	message := w.advised(cachev1alpha1.ReasonShortOfMemory)
	if !strings.Contains(message, "have 64.0 MiB of items, for which members would evict 64.0 MiB, counted in bytes") {
		t.Errorf("the advice is: %s", message)
	}
	w.eventsOnce(cachev1alpha1.ReasonShortOfMemory)
	kubes.Linger(w.namespace, false)
	w.settled(2)
	w.noAdvice()
}

// Members are less than half full by their bytes, and have no page left for items of that size.
func TestScaleDownWaitsForRoomWhereTheSpecSaysSo(t *testing.T) {
	tier.Second(t, "TestScaleDownWaitsForRoomWhereTheSpecSaysSo")
	w := newNamespace(t)
	held := w.full()
	held.Store(pagesOf(26))
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	w.scale(2)
	w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonShortOfMemory)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonShortOfMemory)
	if !strings.Contains(message, "have 23.3 MiB of items, for which members would evict 23.3 MiB, counted in size classes and their pages") {
		t.Errorf("the condition says: %s", message)
	}
	w.always("no member leaves", func() error {
		if c := w.claim(2); c.Annotations[cachev1alpha1.AnnotationLeaving] != "" {
			return errors.New("the claim is marked")
		}
		return w.replicasAre(3)
	})
	held.Store(pagesOf(13))
	w.settled(2)
}

func TestScaleDownGoesOnWhereMembersCannotBeAsked(t *testing.T) {
	tier.Second(t, "TestScaleDownWaitsForRoomWhereTheSpecSaysSo")
	w := newNamespace(t)
	w.memory = func(context.Context, string) (controllers.Holds, error) {
		return controllers.Holds{}, errors.New("connection refused")
	}
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	w.advised(cachev1alpha1.ReasonMemoryUnknown)
	kubes.Linger(w.namespace, false)
	w.settled(2)
}
