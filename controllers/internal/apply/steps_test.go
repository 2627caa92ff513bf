package apply

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/remembered"
)

// noClaims is an API server that fails to answer about claims.
type noClaims struct{ oneMemcached }

func (s *noClaims) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, is := object.(*corev1.PersistentVolumeClaim); is {
		return errors.New("etcd does not answer")
	}
	return s.oneMemcached.Get(ctx, key, object, options...)
}

// A mark is left out if an earlier step about its claim has failed. That stops the same steps as a mark that
// fails: neither clients nor routers are told that its member leaves.
func TestAMarkThatIsLeftOutStopsWhatDependsOnMarks(t *testing.T) {
	cluster := apitest.MakeMemcached("cache").Storage("128Mi").Defaulted().Obj()
	cluster.UID = "memcached"
	claim := action.ClaimRef{Name: "data-cache-2", UID: "uid-2", Ordinal: 2}
	for what, test := range map[string]struct {
		steps   []action.Action
		applied int
	}{
		"a finalizer fails": {[]action.Action{action.AddClaimFinalizer{Claim: claim}, action.ApplyService{}}, 1},
		"a finalizer fails, and the mark of its claim is left out": {
			[]action.Action{action.AddClaimFinalizer{Claim: claim}, action.MarkLeaving{Claim: claim}, action.ApplyService{}}, 0,
		},
	} {
		server := &noClaims{oneMemcached{live: cluster}}
		a := &Applier{Clock: clock.RealClock{}, Client: server, Reader: &observe.Reader{Live: server, Cache: server}, Matches: &remembered.Matches{}}
		if _, err := a.Apply(t.Context(), cluster, &observe.Objects{}, test.steps); err == nil || server.applied != test.applied {
			t.Errorf("%s: %d applied, want %d; %v", what, server.applied, test.applied, err)
		}
	}
}
