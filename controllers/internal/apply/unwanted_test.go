package apply

import (
	"context"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// oneBudget is an API server that has at most a budget.
type oneBudget struct {
	client.Client
	live          *policyv1.PodDisruptionBudget
	gets, deleted int
}

func (s *oneBudget) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.gets++
	if budget, is := object.(*policyv1.PodDisruptionBudget); is && s.live != nil {
		s.live.DeepCopyInto(budget)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *oneBudget) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	s.deleted++
	s.live = nil
	return nil
}

// TestAnUnwantedObjectGoesAlthoughAStrangerTookItsLabel, so that no cache has it. If nothing changes, nothing is read.
func TestAnUnwantedObjectGoesAlthoughAStrangerTookItsLabel(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Storage("128Mi").Size(3).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.PodDisruptionBudget.Enabled = ptr.To(false)
	}).Defaulted().Obj()
	cluster.UID, cluster.Generation, cluster.Status.ObservedGeneration = "memcached", 7, 7
	changed, created, other := cluster.DeepCopy(), cluster.DeepCopy(), cluster.DeepCopy()
	changed.Status.ObservedGeneration, created.Status.ObservedGeneration, other.UID = 6, 0, "other"
	of := func(owner *cachev1alpha1.Memcached) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "budget", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, cachev1alpha1.GroupVersion.WithKind("Memcached")),
		}}}
	}
	for what, test := range map[string]struct {
		cluster       *cachev1alpha1.Memcached
		live          *policyv1.PodDisruptionBudget
		wanted        bool // this process has seen it as wanted
		gets, deleted int
	}{
		"this process has seen it":                     {cluster, of(cluster), true, 1, 1},
		"it has gone":                                  {cluster, nil, true, 1, 0},
		"another owner's has its name":                 {cluster, of(other), true, 1, 0},
		"the spec changed while no operator was there": {changed, of(cluster), false, 1, 1},
		"at rest":       {cluster, nil, false, 0, 0},
		"a new cluster": {created, nil, false, 0, 0},
	} {
		server := &oneBudget{live: test.live}
		a := &Applier{Clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0)), Client: server, Reader: &observe.Reader{Live: server}, Matches: &remembered.Matches{}}
		if test.wanted {
			a.Matches.Note(test.cluster, kindPodDisruptionBudget, of(cluster), 0)
		}
		for range 3 {
			if _, err := a.Apply(t.Context(), test.cluster, &observe.Objects{}, []action.Action{action.ApplyBudget{}}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if server.gets != test.gets || server.deleted != test.deleted {
			t.Errorf("%s: %d read, %d deleted; want %d, %d", what, server.gets, server.deleted, test.gets, test.deleted)
		}
	}
}
