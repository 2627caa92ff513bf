package apply

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/observe"
)

// oneStatefulSet is an API server that has nothing else.
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

// The garbage collector takes the controller off the StatefulSet before it takes the
// finalizer off that says so: a cache may have the second without the first.
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
		a := &Applier{Client: server, Reader: &observe.Reader{Live: server}}
		err := a.run(&observe.State{Cluster: cluster, StatefulSet: owned}).deleteMembers(t.Context())
		if server.deleted != test.deleted || errors.Is(err, observe.ErrRefused) != test.refused {
			t.Errorf("%s: %d deleted, %v", what, server.deleted, err)
		}
	}
}
