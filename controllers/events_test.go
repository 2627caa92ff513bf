package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/events"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// TestAnEventTellsEachAdviceOnceInEachOfItsWords: by the status of before, which an operator that
// starts has, too.
func TestAnEventTellsEachAdviceOnceInEachOfItsWords(t *testing.T) {
	advised := func(list ...cachev1alpha1.Advice) *cachev1alpha1.Memcached {
		c := apitest.MakeMemcached("cache").Storage("1Gi").Obj()
		c.Status.Advice = list
		return c
	}
	room := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonNoRoomToReplay, Message: "room for one"}
	cold := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonStartedCold, Message: "cache-0"}
	more := cachev1alpha1.Advice{Reason: cachev1alpha1.ReasonStartedCold, Message: "cache-0, cache-1"}
	for _, step := range []struct {
		before, after *cachev1alpha1.Memcached
		want          []string
	}{
		{advised(), advised(), nil},
		{advised(), advised(room, cold), []string{"Warning NoRoomToReplay room for one", "Warning StartedCold cache-0"}},
		{advised(room, cold), advised(room, cold), nil},
		{advised(room, cold), advised(room, more), []string{"Warning StartedCold cache-0, cache-1"}},
		{advised(room, more), advised(room), nil},
	} {
		recorder := events.NewFakeRecorder(10)
		(&MemcachedReconciler{Events: recorder}).announce(step.before, step.after)
		close(recorder.Events)
		var got []string
		for e := range recorder.Events {
			got = append(got, e)
		}
		if diff := cmp.Diff(step.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("from %+v to %+v: -want +got:\n%s", step.before.Status.Advice, step.after.Status.Advice, diff)
		}
	}
}
