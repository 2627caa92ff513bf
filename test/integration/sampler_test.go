package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// neighbours makes worlds whose namespaces this world's operator watches, too.
func (w *world) neighbours(n int) []*world {
	w.Helper()
	var worlds []*world
	for range n {
		other := newSerialNamespace(w.T)
		w.others = append(w.others, other.namespace)
		worlds = append(worlds, other)
	}
	return worlds
}

// More clusters than there are workers have a drainer on a dead node. Each read of its log takes as long as it
// may.
func TestDrainersOnADeadNodeHoldNoOtherClusterUp(t *testing.T) {
	tier.Second(t, "TestAClusterThatIsBrokenPausedOrDeletedHoldsNoOtherUp")
	w := newNamespace(t)
	w.progress = func(ctx context.Context, namespace, _ string) (*contract.Progress, error) {
		if namespace != w.namespace {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &contract.Progress{Phase: contract.PhaseAdding, ItemsDone: 25, ItemsTotal: 100, BytesDone: 25, BytesTotal: 100}, nil
	}
	dead := w.neighbours(6)
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	for _, d := range dead {
		d.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
	}
	for _, d := range dead {
		d.settled(2)
		kubes.Play(d.namespace, player.Hang)
	}
	for _, d := range dead {
		d.scale(1)
	}
	for _, d := range dead {
		d.drainRuns(d.claim(1).UID)
	}
	kubes.Play(w.namespace, player.Hang)
	w.scale(2)
	w.eventually("progress of the other one", func() error {
		if p := w.memcached().Status.Progress; p != "25% (25/100 items)" {
			return fmt.Errorf("%q", p)
		}
		return nil
	})
	kubes.Play(w.namespace, player.Succeed(7))
	w.settled(2)
	for _, d := range dead {
		kubes.Play(d.namespace, player.Succeed(7))
	}
	for _, d := range dead {
		d.settled(1)
	}
}

// Members that never answer delay a scale-down for a moment, and no other cluster.
func TestMembersThatDoNotAnswerHoldAScaleDownUpForAMomentOnly(t *testing.T) {
	tier.Second(t, "TestScaleDownWaitsForItsMembersAnswers")
	w := newNamespace(t)
	var longest atomic.Int64
	w.memory = func(ctx context.Context, _ string) (controllers.Holds, error) {
		bound := time.Hour
		if deadline, ok := ctx.Deadline(); ok {
			bound = time.Until(deadline)
		}
		longest.Store(max(longest.Load(), int64(bound)))
		<-ctx.Done()
		return controllers.Holds{}, ctx.Err()
	}
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name).OnShortage(cachev1alpha1.ShortageWait), 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	w.advised(cachev1alpha1.ReasonMemoryUnknown)
	if d := time.Duration(longest.Load()); d == 0 || d > time.Second {
		t.Errorf("members had %s to answer", d)
	}
	kubes.Linger(w.namespace, false)
	w.settled(2)
}

// A step that is always refused is tried less and less often, and status says so.
func TestARefusalThatHoldsBacksOffAndShows(t *testing.T) {
	tier.Second(t, "TestARefusalIsTriedAgainSlowerAndSlowerHoweverManyEventsCome")
	w := newWorld(t)
	w.hangingDrain(apitest.MakeMemcached(name))
	w.quiet()
	r := w.running().Reconciler
	clock := testingclock.NewFakePassiveClock(time.Now())
	late := &controllers.MemcachedReconciler{
		Client: behind{r.Client, together(withoutJobs, withoutPods)}, Live: r.Live, Events: r.Events, Options: r.Options, Clock: clock,
	}
	var waited []time.Duration
	for elapsed := time.Duration(0); elapsed < 3*time.Minute; {
		result, err := late.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key(name)})
		if err != nil {
			t.Fatal(err)
		}
		degraded := meta.FindStatusCondition(w.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		shows := degraded.Reason == cachev1alpha1.ReasonStepRefused
		if shows && elapsed < time.Minute || !shows && elapsed > 90*time.Second {
			t.Errorf("after %s: %s", elapsed, asJSON(degraded))
		}
		waited = append(waited, result.RequeueAfter)
		elapsed += result.RequeueAfter
		clock.SetTime(clock.Now().Add(result.RequeueAfter))
	}
	if len(waited) > 40 { // the operator looks again at other things, too
		t.Errorf("tried %d times in 3 minutes, after %v", len(waited), waited)
	}
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonStepRefused)
	if !strings.Contains(message, "drain claim "+claimName(2)) {
		t.Errorf("the condition says: %s", message)
	}
	w.reconcile() // the operator's cache is not behind
	if err := w.claimIsKept(2); err != nil {
		t.Error(errors.New("the claim is not kept"))
	}
	kubes.Play(w.namespace, player.Succeed(7))
	w.settled(2)
}
