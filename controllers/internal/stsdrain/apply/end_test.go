package apply

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/remembered"
	"example.com/memcached-operator/controllers/internal/stsdrain"
	"example.com/memcached-operator/controllers/internal/stsdrain/observe"
)

// withFinalizer is the cache of claims without a Memcached's label: it finds those that have our finalizer.
type withFinalizer struct {
	cache.Cache
	of client.Reader
}

func (w withFinalizer) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	var all corev1.PersistentVolumeClaimList
	if err := w.of.List(ctx, &all); err != nil {
		return err
	}
	list := into.(*metav1.PartialObjectMetadataList)
	for i := range all.Items {
		if c := &all.Items[i]; controllerutil.ContainsFinalizer(c, cachev1alpha1.ClaimFinalizer) {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: c.ObjectMeta})
		}
	}
	return nil
}

// A claim that has lost the label is in no cache. When the StatefulSetDrain goes, such a claim keeps no
// finalizer that nothing would ever take off: neither after another start of the operator, nor without the
// StatefulSet.
func TestTheEndReleasesAClaimThatHasLostItsLabel(t *testing.T) {
	for what, noSet := range map[string]bool{"with the StatefulSet": false, "without the StatefulSet": true} {
		t.Run(what, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cachev1alpha1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			ctx, now := context.Background(), time.Unix(1700000000, 0)
			d := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "queue", UID: "drain", Finalizers: []string{cachev1alpha1.OwnerFinalizer}, DeletionTimestamp: &metav1.Time{Time: now},
			}}
			d.Spec.StatefulSetName = "queue"
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "queue", UID: "set"}}
			set.Spec.Replicas, set.Spec.Selector = ptr.To[int32](1), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "queue"}}
			set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "data-queue-0", UID: "claim", Finalizers: []string{cachev1alpha1.ClaimFinalizer},
				Annotations: map[string]string{cachev1alpha1.AnnotationProtected: "drain"},
			}}
			objects := []client.Object{d, claim, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
			if noSet {
				set = nil
			} else {
				objects = append(objects, set)
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			clock := testingclock.NewFakePassiveClock(now)
			reader := &observe.Reader{
				Cache: c, Objects: c, Live: c, Clock: clock, Unlabelled: &read.UnlabelledClaims{Cache: withFinalizer{of: c}}, Seen: &remembered.Names{},
				Obstructed: &remembered.Obstructions{}, Looked: &observe.Looked{}, NotCreated: &read.MissingPods{}, Woken: &remembered.ByObject[observe.Woken]{},
				See: func(client.ObjectKey, types.UID, string) observe.Seen { return observe.Seen{Known: true, Set: set} },
			}
			applier := &Applier{Client: c, Reader: reader, Events: &events.FakeRecorder{}, Clock: clock, Made: &remembered.Matches{}}
			for range 3 {
				now := &cachev1alpha1.StatefulSetDrain{}
				err := c.Get(ctx, client.ObjectKeyFromObject(d), now)
				if apierrors.IsNotFound(err) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				s, err := reader.Observe(ctx, now)
				if err != nil {
					t.Fatal(err)
				}
				in := s.Input("")
				p := stsdrain.Decide(&in)
				if _, err := applier.Apply(ctx, s, &p, ""); err != nil {
					t.Log(err)
				}
			}
			left := &corev1.PersistentVolumeClaim{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(claim), left); err != nil || len(left.Finalizers) > 0 {
				t.Errorf("the claim has finalizers %v, %v", left.Finalizers, err)
			}
			if err := c.Get(ctx, client.ObjectKeyFromObject(d), &cachev1alpha1.StatefulSetDrain{}); !apierrors.IsNotFound(err) {
				t.Errorf("the StatefulSetDrain is still there: %v", err)
			}
		})
	}
}
