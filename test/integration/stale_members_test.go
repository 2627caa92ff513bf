package integration

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// former is a cache with a former state of the StatefulSet.
type former struct {
	client.Client
	members *appsv1.StatefulSet
}

func (f former) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if s, ok := object.(*appsv1.StatefulSet); ok {
		f.members.DeepCopyInto(s)
		return nil
	}
	return f.Client.Get(ctx, key, object, options...)
}

// Each apply also sets the size. So a change of the template must not restore an old size.
func TestATemplateThatChangesUnderALaggingCacheDoesNotBringAMemberBack(t *testing.T) {
	tier.Second(t, "TestACacheThatIsBehindLeadsToNothingThatCannotBeUndone")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, player.Hang)
	was, left := w.statefulSet(), w.claim(2)
	w.scale(2)
	w.drainRuns(left.UID)
	w.change(w.memcached(), `{"spec":{"size":3,"podTemplate":{"labels":{"team":"shop"}}}}`)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)

	r := w.running().Reconciler
	late := &controllers.MemcachedReconciler{
		Client: former{behind{r.Client, together(withoutJobs, withoutMarks)}, was},
		Live:   r.Live, Events: r.Events, Options: r.Options, Clock: r.Clock,
	}
	if _, err := late.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key(name)}); err != nil {
		t.Errorf("reconcile: %v", err)
	}
	equal(w, "replicas", *w.statefulSet().Spec.Replicas, 2)
	kubes.Play(w.namespace, player.Succeed(3))
	w.claimGone(2, left.UID)
	w.settled(3)
}
