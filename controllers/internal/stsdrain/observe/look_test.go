package observe

import (
	"context"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// A label in the volumeClaimTemplates can't be changed, so a StatefulSetDrain of another name finds it on each new claim.
func TestANewClaimIsFoundThatNamesAnotherStatefulSetDrain(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cachev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	d, set := drain(), statefulSet()
	d.Finalizers = []string{cachev1alpha1.OwnerFinalizer}
	set.Spec.Replicas, set.Spec.Selector = ptr.To[int32](1), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d, set).Build()
	var pods []*corev1.Pod
	r := &Reader{
		Cache: c, Objects: c, Live: c, Clock: testingclock.NewFakePassiveClock(time.Unix(1700000000, 0)), Seen: &remembered.Names{},
		Obstructed: &remembered.Obstructions{}, Looked: &Looked{}, NotCreated: &read.MissingPods{}, Woken: &remembered.Of[Woken]{},
		See: func(client.ObjectKey, types.UID, string) Seen {
			return Seen{Known: true, Set: set, Pods: pods}
		},
	}
	found := func() bool {
		t.Helper()
		s, err := r.Observe(context.Background(), d)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(s.Input("").Claims, func(c claims.Claim) bool { return c.Name == "data-queue-0" })
	}
	if found() {
		t.Fatal("there is no claim yet")
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data-queue-0", UID: "claim", Labels: map[string]string{cachev1alpha1.LabelStatefulSetDrain: "before"},
	}}
	if err := c.Create(context.Background(), claim); err != nil {
		t.Fatal(err)
	}
	pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue-0", UID: "pod", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}}}}
	for range 2 { // until it is protected
		if !found() {
			t.Error("the claim is not found")
		}
	}
}
