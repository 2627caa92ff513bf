package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/deployed"
	"example.com/memcached-operator/test/tier"
)

// TestItemsAreWhereClientsLookAfterEachScaling has an application that reads, overwrites and deletes its keys
// all the time, by a real client library. Meanwhile the cluster is scaled as an autoscaler may scale it, a size
// is asked for before the last one is reached, and moves and members are killed. No read finds a value older
// than the last acknowledged one, nor one that was deleted while nothing moved. After each scaling every key is
// found.
func TestItemsAreWhereClientsLookAfterEachScaling(t *testing.T) {
	tier.Second(t, "TestJourneyOfClientsThatFollow")
	t.Parallel()
	for client := range libraries {
		t.Run(string(client), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			f := setup(t, cachev1alpha1.MemcachedSpec{
				Size: ptr.To[int32](3), Memory: ptr.To(resource.MustParse("64Mi")),
				Storage: &cachev1alpha1.StorageSpec{Size: resource.MustParse("256Mi")},
				Routing: cachev1alpha1.RoutingSpec{Client: client, Patience: &metav1.Duration{Duration: 20 * time.Second}},
				Drain:   cachev1alpha1.DrainSpec{Parallelism: 4},
			})
			a := newWriters(f, client, random)
			a.settle(3)
			a.fill()
			defer a.start()()

			moment := func(within time.Duration) { time.Sleep(time.Duration(random.Int64N(int64(within)))) }
			sizes := []int32{5, 2, 3, 2}
			hurried := random.IntN(len(sizes) - 1) // the next size is asked for during this scaling
			began := time.Now()
			for n, size := range sizes {
				moment(time.Second)
				f.scale(size)
				if n == hurried {
					moment(8 * time.Second)
					t.Logf("%d members are wanted, and after %s another number", size, time.Since(began).Round(time.Millisecond))
					continue
				}
				if n < 2 {
					f.eventually("a move was killed", f.killMove)
				}
				moment(6 * time.Second)
				a.crash(random.IntN(2))
				a.findsAllAfter(size, began)
				began = time.Now()
			}
			a.report()
		})
	}
}

// killMove kills a mover that runs. killMove returns false if there is none: when no member is left to be
// moved, there is no mover.
func (f *fixture) killMove() bool {
	f.Helper()
	for _, pod := range f.pods() {
		if pod.Labels[cachev1alpha1.LabelComponent] == cachev1alpha1.ComponentMove {
			for _, pid := range f.processesOf(&pod, "drainer") {
				if deployed.Signal(pid, syscall.SIGKILL) == nil {
					f.Logf("killed %s", pod.Name)
					return true
				}
			}
		}
	}
	mc := f.memcached()
	s := mc.Status
	return s.ObservedGeneration == mc.Generation && s.Size == s.ReadySize && s.Draining == 0 && s.Moving == 0 &&
		meta.IsStatusConditionFalse(s.Conditions, cachev1alpha1.ConditionProgressing)
}
