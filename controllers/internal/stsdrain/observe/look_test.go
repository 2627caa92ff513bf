package observe

import (
	"context"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// readerOf returns a reader of the StatefulSetDrain, and the API server that it reads from.
func readerOf(t *testing.T, d *cachev1alpha1.StatefulSetDrain, set *appsv1.StatefulSet, pods *[]*corev1.Pod) (*Reader, client.WithWatch) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cachev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	d.Finalizers = []string{cachev1alpha1.OwnerFinalizer}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d, set).Build()
	return &Reader{
		Cache: c, Objects: c, Live: c, Clock: testingclock.NewFakePassiveClock(time.Unix(1700000000, 0)), Seen: &remembered.Names{},
		Obstructed: &remembered.Obstructions{}, Looked: &Looked{}, NotCreated: &read.MissingPods{}, Woken: &remembered.ByObject[Woken]{},
		See: func(client.ObjectKey, types.UID, string) Seen {
			return Seen{Known: true, Set: set, Pods: *pods}
		},
	}, c
}

// watched is the watch of the claims' metadata: it has the claims of the API server.
type watched struct {
	cache.Cache
	of client.Reader
}

func (w watched) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	claim := &corev1.PersistentVolumeClaim{}
	if err := w.of.Get(ctx, key, claim); err != nil {
		return err
	}
	object.(*metav1.PartialObjectMetadata).ObjectMeta = claim.ObjectMeta
	return nil
}

// List has none with our finalizer.
func (watched) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// More claims of another owner than are read by their names are looked at again and again. Only those that have changed are read.
func TestClaimsOfAnotherOwnerAreReadAgainOnlyIfTheyHaveChanged(t *testing.T) {
	const many = 20
	d, set := drain(), statefulSet()
	set.Spec.Replicas = ptr.To[int32](many)
	var pods []*corev1.Pod
	r, c := readerOf(t, d, set, &pods)
	for i := range many {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("data-queue-%d", i), UID: types.UID(fmt.Sprint(i))}}
		controlled("Database", "orders")(claim)
		if err := c.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	var reads []string
	r.Unlabelled = &read.UnlabelledClaims{Cache: watched{of: c}}
	r.Live = interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, is := object.(*corev1.PersistentVolumeClaim); is {
				reads = append(reads, "get "+key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, is := list.(*corev1.PersistentVolumeClaimList); is {
				reads = append(reads, "list")
			}
			return c.List(ctx, list, options...)
		},
	})
	later := func(foreign int, want ...string) {
		t.Helper()
		clock := r.Clock.(*testingclock.FakePassiveClock)
		clock.SetTime(clock.Now().Add(foreignInterval))
		reads = nil
		s, err := r.Observe(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Foreign) != foreign || !slices.Equal(reads, want) {
			t.Errorf("%d claims of another owner, and reads %v; want %d and %v", len(s.Foreign), reads, foreign, want)
		}
	}
	later(many, "list")
	later(many)
	pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue-0", UID: "pod"}}}
	later(many)
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "data-queue-7"}, claim); err != nil {
		t.Fatal(err)
	}
	claim.OwnerReferences = nil
	if err := c.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	later(many-1, "get data-queue-7")
}

// The StatefulSet's controller makes the claim of a pod that waits for a node again: then the pod is the
// same.
func TestAClaimThatIsMadeAnewForAWaitingPodIsFound(t *testing.T) {
	d, set := drain(), statefulSet()
	set.Spec.Replicas = ptr.To[int32](1)
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue-0", UID: "pod"}}}
	r, c := readerOf(t, d, set, &pods)
	r.Unlabelled = &read.UnlabelledClaims{Cache: watched{of: c}}
	for range 2 { // its old claim is gone
		if s, err := r.Observe(t.Context(), d); err != nil || len(s.Claims) > 0 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if err := c.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-queue-0", UID: "claim"}}); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Observe(t.Context(), d); err != nil || len(s.Claims) != 1 {
		t.Errorf("claims %+v, %v", s.Claims, err)
	}
}

// A label in the volumeClaimTemplates can't be changed, so a StatefulSetDrain of another name finds it on each new claim.
func TestANewClaimIsFoundThatNamesAnotherStatefulSetDrain(t *testing.T) {
	d, set := drain(), statefulSet()
	set.Spec.Replicas = ptr.To[int32](1)
	var pods []*corev1.Pod
	r, c := readerOf(t, d, set, &pods)
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
