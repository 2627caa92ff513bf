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

// full makes members say that all of their memory is used, until used is set to less.
func (w *world) full() (used *atomic.Int64) {
	const limit = 64 << 20
	used = &atomic.Int64{}
	used.Store(limit)
	w.memory = func(context.Context, string) (controllers.Memory, error) {
		return controllers.Memory{Used: used.Load(), Limit: limit}, nil
	}
	return used
}

func TestScaleDownIntoTooLittleRoomSaysSoBeforeAnythingMoves(t *testing.T) {
	w := newNamespace(t)
	w.full()
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	message := w.advised(cachev1alpha1.ReasonShortOfMemory)
	if !strings.Contains(message, "have 64.0 MiB of items, the survivors have 0.0 MiB free") {
		t.Errorf("the advice is: %s", message)
	}
	w.eventsOnce(cachev1alpha1.ReasonShortOfMemory)
	kubes.Linger(w.namespace, false)
	w.settled(2)
	w.noAdvice()
}

func TestScaleDownWaitsForRoomWhereTheSpecSaysSo(t *testing.T) {
	tier.Second(t, "TestScaleDownWaitsForRoomWhereTheSpecSaysSo")
	w := newNamespace(t)
	used := w.full()
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	w.scale(2)
	w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonShortOfMemory)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonShortOfMemory)
	if !strings.Contains(message, "have 64.0 MiB of items, the survivors have 0.0 MiB free") {
		t.Errorf("the condition says: %s", message)
	}
	w.always("no member leaves", func() error {
		if c := w.claim(2); c.Annotations[cachev1alpha1.AnnotationLeaving] != "" {
			return errors.New("the claim is marked")
		}
		return w.replicasAre(3)
	})
	used.Store(1 << 20)
	w.settled(2)
}

func TestScaleDownGoesOnWhereMembersCannotBeAsked(t *testing.T) {
	tier.Second(t, "TestScaleDownWaitsForRoomWhereTheSpecSaysSo")
	w := newNamespace(t)
	w.memory = func(context.Context, string) (controllers.Memory, error) {
		return controllers.Memory{}, errors.New("connection refused")
	}
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	w.advised(cachev1alpha1.ReasonMemoryUnknown)
	kubes.Linger(w.namespace, false)
	w.settled(2)
}
