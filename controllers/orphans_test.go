package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
)

// keptClaim was deleted, and our finalizer keeps it.
func keptClaim(name string) *corev1.PersistentVolumeClaim {
	now := metav1.Now()
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Finalizers: []string{cachev1alpha1.ClaimFinalizer}, DeletionTimestamp: &now,
	}}
}

// orphanage returns the controller, over these objects and a namespace, and its clock.
func orphanage(ends bool, objects ...client.Object) (*orphans, *events.FakeRecorder, *testingclock.FakeClock) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	if ends {
		now := metav1.Now()
		shop.DeletionTimestamp, shop.Finalizers = &now, []string{"kubernetes"}
	}
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithObjects(append(objects, shop)...).Build()
	recorder, clock := events.NewFakeRecorder(10), testingclock.NewFakeClock(time.Unix(1700000000, 0))
	return &orphans{Client: c, Live: c, Events: recorder, Clock: clock}, recorder, clock
}

func look(t *testing.T, o *orphans, name string) ctrl.Result {
	t.Helper()
	result, err := o.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestOnlyAClaimThatBelongsToNothingIsCalledAnOrphan(t *testing.T) {
	live := keptClaim("data-queue-0")
	live.DeletionTimestamp = nil
	unprotected := keptClaim("data-queue-0")
	unprotected.Finalizers = []string{"kubernetes.io/pvc-protection"}
	queue := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "any"}}
	queue.Spec.StatefulSetName = "queue"
	elsewhere := queue.DeepCopy()
	elsewhere.Namespace = "other"
	for what, test := range map[string]struct {
		objects []client.Object
		orphan  bool
	}{
		"nothing else is there":                        {[]client.Object{keptClaim("data-queue-0")}, true},
		"a StatefulSetDrain of its StatefulSet":        {[]client.Object{keptClaim("data-queue-0"), queue}, false},
		"one in another namespace":                     {[]client.Object{keptClaim("data-queue-0"), elsewhere}, true},
		"a Memcached of its name":                      {[]client.Object{keptClaim("data-queue-0"), apitest.MakeMemcached("queue").Namespace("shop").Obj()}, false},
		"another Memcached":                            {[]client.Object{keptClaim("data-queue-0"), apitest.MakeMemcached("cache").Namespace("shop").Obj()}, true},
		"a claim that was not deleted":                 {[]client.Object{live}, false},
		"a claim that only another finalizer keeps":    {[]client.Object{unprotected}, false},
		"no claim, which is released in the meantime ": {nil, false},
	} {
		o, recorder, _ := orphanage(false, test.objects...)
		result := look(t, o, "data-queue-0")
		if said := len(recorder.Events) > 0; said != test.orphan || (result.RequeueAfter > 0) != test.orphan {
			t.Errorf("%s: it says so: %v, and looks again after %s", what, said, result.RequeueAfter)
		}
	}
}

func TestAnOrphanIsSaidOnceAnHour(t *testing.T) {
	o, recorder, clock := orphanage(false, keptClaim("data-queue-0"))
	hourly := 0
	for range 3 * int(time.Hour/orphanInterval) {
		look(t, o, "data-queue-0")
		for len(recorder.Events) > 0 {
			hourly++
			if said := <-recorder.Events; !strings.HasPrefix(said, "Warning NothingDrains ") {
				t.Errorf("it says %q", said)
			}
		}
		clock.Step(orphanInterval)
	}
	if hourly != 3 {
		t.Errorf("said %d times in three hours", hourly)
	}
}

// Else the namespace would stay Terminating, where no event can be made.
func TestAnOrphanIsReleasedWhenItsNamespaceIsDeleted(t *testing.T) {
	claim := keptClaim("data-queue-0")
	claim.Finalizers = append(claim.Finalizers, "example.com/other")
	o, recorder, _ := orphanage(true, claim)
	look(t, o, claim.Name)
	is := &corev1.PersistentVolumeClaim{}
	if err := o.Get(t.Context(), client.ObjectKeyFromObject(claim), is); err != nil || !slices.Equal(is.Finalizers, []string{"example.com/other"}) {
		t.Errorf("%v, finalizers %v", err, is.Finalizers)
	}
	if len(recorder.Events) > 0 {
		t.Errorf("it says %q", <-recorder.Events)
	}
}

func TestDeletedClaimsAreLookedAtWhenAnOwnerGoes(t *testing.T) {
	live := keptClaim("data-queue-1")
	live.DeletionTimestamp = nil
	o, _, _ := orphanage(false, keptClaim("data-queue-0"), live)
	gone := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue"}}
	if got := o.inNamespace(context.Background(), gone); len(got) != 1 || got[0].Name != "data-queue-0" {
		t.Errorf("%v", got)
	}
}
