package observe

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// setAndClaims is an API server with a StatefulSet and claims.
type setAndClaims struct {
	client.Client
	set    *appsv1.StatefulSet
	claims []corev1.PersistentVolumeClaim
}

func (s *setAndClaims) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if set, ok := object.(*appsv1.StatefulSet); ok && s.set != nil {
		s.set.DeepCopyInto(set)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *setAndClaims) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PersistentVolumeClaimList).Items = s.claims
	return nil
}

// A size that is left out is the cluster's present size, even during a scaling.
func TestTheSizeThatIsLeftOutIsThatOfTheCluster(t *testing.T) {
	cluster := testCluster()
	cluster.UID, cluster.Spec.Storage, cluster.Spec.Size = "memcached", &cachev1alpha1.StorageSpec{}, nil
	of := func(replicas int32) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached"))}},
			Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(replicas)},
		}
	}
	strangers := of(7)
	strangers.OwnerReferences[0].UID = "another"
	member := func(ordinals ...int) (claims []corev1.PersistentVolumeClaim) {
		for _, i := range ordinals {
			claims = append(claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-%s-%d", cluster.Name, i)}})
		}
		return claims
	}
	marked := func(ordinals ...int) []corev1.PersistentVolumeClaim {
		claims := member(ordinals...)
		for i := range claims {
			claims[i].Annotations = map[string]string{cachev1alpha1.AnnotationLeaving: "2026-01-01T00:00:00Z"}
		}
		return claims
	}
	for what, test := range map[string]struct {
		set    *appsv1.StatefulSet
		claims []corev1.PersistentVolumeClaim
		want   int32
	}{
		"a new cluster":                       {nil, nil, 1},
		"at rest":                             {of(3), member(0, 1, 2), 3},
		"hibernated":                          {of(0), member(0, 1, 2), 0},
		"members leave":                       {of(4), append(member(0, 1), marked(2, 3)...), 2},
		"a departed member's volume is there": {of(2), append(member(0, 1), marked(2)...), 2},
		"a mark that another client wrote":    {of(3), append(member(1, 2), marked(0)...), 3},
		"all marked":                          {of(2), marked(0, 1), 1},
		"the StatefulSet was deleted":         {nil, append(member(0, 1, 2), marked(3)...), 3},
		"a claim of a number that can't be":   {nil, member(0, 511), 1},
		"another owner's StatefulSet":         {strangers, member(0, 1), 2},
		"more than there may be":              {of(100_000), nil, cachev1alpha1.MaxSize},
	} {
		server := &setAndClaims{set: test.set, claims: test.claims}
		if got, err := (&Reader{Cache: server, Live: server}).LiveSize(t.Context(), cluster); err != nil || got != test.want {
			t.Errorf("%s: got %d, %v; want %d", what, got, err, test.want)
		}
	}
}
