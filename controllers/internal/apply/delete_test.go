package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// oneStatefulSet is an API server with a single StatefulSet.
type oneStatefulSet struct {
	client.Client
	members *appsv1.StatefulSet
	deleted int
}

func (s *oneStatefulSet) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.members.DeepCopyInto(object.(*appsv1.StatefulSet))
	return nil
}

func (s *oneStatefulSet) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	s.deleted++
	return nil
}

// The garbage collector removes the StatefulSet's owner reference before it removes the Memcached's
// finalizer orphan. A cache may have the second change without the first.
func TestMembersThatAreLeftAreNotDeletedByALaggingCache(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
	cluster.UID = "memcached"
	owned := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "set", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(cluster, cachev1alpha1.GroupVersion.WithKind("Memcached")),
	}}}
	left, successor := owned.DeepCopy(), owned.DeepCopy()
	left.OwnerReferences, successor.UID = nil, "another"
	for what, test := range map[string]struct {
		live    *appsv1.StatefulSet
		deleted int
		refused bool
	}{
		"as the cache has it": {owned, 1, false},
		"it was left":         {left, 0, true},
		"it is another one":   {successor, 0, false},
	} {
		server := &oneStatefulSet{members: test.live}
		a := &Applier{Clock: clock.RealClock{}, Client: server, Reader: &observe.Reader{Live: server}}
		err := a.run(cluster, &observe.Objects{}).deleteMembers(t.Context(), action.DeleteMembers{UID: owned.UID})
		if server.deleted != test.deleted || errors.Is(err, read.ErrRefused) != test.refused {
			t.Errorf("%s: %d deleted, %v", what, server.deleted, err)
		}
	}
}

// oneMemcached is an API server with a single Memcached.
type oneMemcached struct {
	client.Client
	live    *cachev1alpha1.Memcached
	applied int
}

func (s *oneMemcached) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if cluster, is := object.(*cachev1alpha1.Memcached); is && s.live != nil {
		s.live.DeepCopyInto(cluster)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *oneMemcached) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	s.applied++
	return nil
}

// The garbage collector deletes the objects of a deleted owner. So a cluster that was deleted a
// moment ago, and left its objects, must not own them again.
func TestNothingIsOwnedAgainByALaggingCache(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
	cluster.UID = "memcached"
	deleted, successor := cluster.DeepCopy(), cluster.DeepCopy()
	deleted.DeletionTimestamp, successor.UID = &metav1.Time{Time: time.Unix(1000, 0)}, "another"
	for what, test := range map[string]struct {
		live    *cachev1alpha1.Memcached
		applied int
		refused bool
	}{
		"as the cache has it": {cluster, 1, false},
		"it is being deleted": {deleted, 0, true},
		"it is gone":          {nil, 0, true},
		"it is another one":   {successor, 0, true},
	} {
		server := &oneMemcached{live: test.live}
		a := &Applier{Clock: clock.RealClock{}, Client: server, Reader: &observe.Reader{Live: server}, Matches: &remembered.Matches{}}
		err := a.run(cluster, &observe.Objects{}).applyService(t.Context())
		if server.applied != test.applied || errors.Is(err, read.ErrRefused) != test.refused {
			t.Errorf("%s: %d applied, %v", what, server.applied, err)
		}
	}
}
