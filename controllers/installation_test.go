package controllers

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/installation"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// The first installation that asks has a StatefulSetDrain, until it answers no more.
func TestAStatefulSetDrainHasOneInstallation(t *testing.T) {
	d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "drain"}}
	d.Spec.StatefulSetName = "queue"
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithStatusSubresource(d).WithObjects(d).Build()
	clock := testingclock.NewFakeClock(time.Unix(1700000000, 0))
	operator := func(name string) *StatefulSetDrainReconciler {
		return &StatefulSetDrainReconciler{Client: c, Live: c, Clock: clock, Installation: name, target: observe.NewWatches(nil, func(types.NamespacedName) {})}
	}
	// reconcile returns the annotations after a reconcile. An installation that leaves the object alone looks again
	// when an answer is due; otherwise it waits for the watch of the StatefulSet, which doesn't begin here.
	reconcile := func(r *StatefulSetDrainReconciler) (by, question string) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		if err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("installation %s: %+v, %v", r.Installation, result, err)
		}
		is := &cachev1alpha1.StatefulSetDrain{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), is); err != nil {
			t.Fatal(err)
		}
		by, question = is.Annotations[cachev1alpha1.AnnotationOperator], is.Annotations[cachev1alpha1.AnnotationOtherOperator]
		if alone := result.RequeueAfter >= installation.AnswerTime/2; alone == (by == r.Installation) {
			t.Errorf("%q manages it, and installation %s looks again after %s", by, r.Installation, result.RequeueAfter)
		}
		return by, question
	}
	first, second := operator("first"), operator("second")
	if by, _ := reconcile(first); by != "first" {
		t.Errorf("%q manages it", by)
	}
	if by, question := reconcile(second); by != "first" || !strings.Contains(question, "second") {
		t.Errorf("%q manages it, the question is %s", by, question)
	}
	if by, question := reconcile(first); by != "first" || !strings.Contains(question, `"answered":true`) {
		t.Errorf("%q manages it, the answer is %s", by, question)
	}
	for by := "first"; by != "second"; by, _ = reconcile(second) { // the first one is gone
		reconcile(second)
		clock.Step(installation.AnswerTime)
	}
	if by, question := reconcile(first); by != "second" || !strings.Contains(question, "first") {
		t.Errorf("%q manages it, the question is %s", by, question)
	}
}
