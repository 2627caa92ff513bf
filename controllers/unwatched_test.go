package controllers

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// If a right is missing, the operator's watch of the StatefulSet doesn't begin, and the operator knows
// nothing of it: an earlier status doesn't stay.
func TestAStatefulSetThatCanNotBeWatchedIsNotReady(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := cachev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "drain"}}
	d.Spec.StatefulSetName = "queue"
	d.Status.Conditions = []metav1.Condition{{Type: cachev1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: cachev1alpha1.ReasonReady, LastTransitionTime: metav1.Now()}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(d).WithObjects(d).Build()
	clock := testingclock.NewFakeClock(time.Unix(1700000000, 0))
	r := &StatefulSetDrainReconciler{Client: c, Live: c, Clock: clock, target: observe.NewWatches(nil, func(types.NamespacedName) {})}
	ready := func() *metav1.Condition {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		if err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		is := &cachev1alpha1.StatefulSetDrain{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), is); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(is.Status.Conditions, cachev1alpha1.ConditionReady)
	}
	if is := ready(); is.Status != metav1.ConditionTrue {
		t.Errorf("a watch that has just begun: %+v", is)
	}
	clock.Step(claims.StuckAfter)
	if is := ready(); is.Status != metav1.ConditionFalse || is.Reason != cachev1alpha1.ReasonReconcileError {
		t.Errorf("%+v", is)
	}
}
