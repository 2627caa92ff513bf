package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// reconcile makes the operator reconcile everything in the namespace without an event.
func (w *world) reconcile() {
	w.Helper()
	if err := w.reconcileEach(w.running(), w.namespace); err != nil {
		w.Errorf("reconcile: %v", err)
	}
}

// quiet waits until a reconcile writes nothing: then the last event has come.
func (w *world) quiet() {
	w.Helper()
	w.within(100*time.Millisecond, "a reconcile without a write", func() error {
		before := len(w.journal.Writes())
		err := w.reconcileEach(w.running(), w.namespace)
		var starts *cache.ErrResourceNotCached // the operator is starting
		switch {
		case errors.As(err, &starts):
			return err
		case err != nil:
			w.Errorf("reconcile: %v", err)
		}
		if n := len(w.journal.Writes()) - before; n > 0 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
}

// still waits until the operator has written nothing, and sent no event, for longer than it holds details of a status back.
func (w *world) still() {
	w.Helper()
	for writes, events := -1, -1; ; {
		w.quiet()
		n, m := len(w.journal.Writes()), w.journal.Events()
		if n == writes && m == events {
			return
		}
		writes, events = n, m
		time.Sleep(detailsWithin)
	}
}

// detailsWithin is longer than the operator holds details of a status back (controllers/internal/remembered).
const detailsWithin = 3 * time.Second

// This is invariant 8. For each field that a person can set, the applied value could differ from the one that
// the API server reports as applied.
func TestAtRestTheOperatorWritesNothing(t *testing.T) {
	t.Parallel()
	everything := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached(name).EveryField() }
	for what, m := range map[string]*apitest.MemcachedBuilder{
		"the plain sample":         apitest.MakeMemcached(name),
		"plain, every field set":   everything(),
		"with storage":             apitest.MakeMemcached(name).Storage("128Mi"),
		"storage, every field set": everything().Storage("131072Ki").With(discovers),
		"storage, routers":         everything().Storage("131072Ki").With(routed),
		"storage, a named class":   apitest.MakeMemcached(name).Storage("0.5Gi").With(withClass),
		"requests and no limits": apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.1")}
		}),
		"hibernated":                 apitest.MakeMemcached(name).Storage("128Mi").Size(0),
		"storage and the odd memory": apitest.MakeMemcached(name).Memory("0.0625Gi").Storage("1G"),
	} {
		t.Run(what, func(t *testing.T) {
			if what != "plain, every field set" && what != "storage, every field set" && what != "storage, routers" {
				tier.Second(t, "TestAtRestTheOperatorWritesNothing")
			}
			w := newWorld(t)
			m := m.Obj()
			w.create(m)
			w.settled(*m.Spec.Size)
			if what == "storage, routers" {
				w.allRoutedTo(2, int(*m.Spec.Size))
				w.condition(cachev1alpha1.ConditionReady, "True", cachev1alpha1.ReasonAsWanted)
			}
			w.still()
			before, events := len(w.journal.Writes()), w.journal.Events()
			for range 10 {
				w.reconcile()
			}
			w.restartOperator()
			for range 10 {
				w.reconcile()
			}
			for _, pod := range w.pods() {
				w.change(&pod, `{"metadata":{"annotations":{"example.com/touched":"yes"}}}`)
			}
			for range 10 {
				w.reconcile()
			}
			if wrote := w.journal.Writes()[before:]; len(wrote) != 0 || w.journal.Events() != events {
				t.Errorf("wrote %v and %d events, want nothing", wrote, w.journal.Events()-events)
			}
		})
	}
}

func withClass(s *cachev1alpha1.MemcachedSpec) {
	s.Storage.StorageClassName = ptr.To(player.StorageClass)
}

func TestClaimsAreBornWithTheFinalizer(t *testing.T) {
	w := newNamespace(t)
	m := apitest.MakeMemcached(name).Storage("128Mi").Obj()
	w.create(m)
	// The cluster is paused before the operator sees the pods: the operator stops right after it has applied
	// the StatefulSet.
	w.dieAfter(func(write string) bool { return write == "patch statefulsets cache" })
	w.startOperator()
	w.eventually("three claims", func() error {
		if n := len(w.claims()); n != 3 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for _, c := range w.claims() {
		if !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			t.Errorf("claim %s has finalizers %v", c.Name, c.Finalizers)
		}
	}
	w.restartOperator()
	w.settled(3)
	if !slices.Contains(w.memcached().Finalizers, cachev1alpha1.OwnerFinalizer) {
		t.Error("the Memcached has no finalizer")
	}
}

func TestServersAreInRingOrder(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 11)
	var want []string
	for i := range 11 {
		want = append(want, fmt.Sprintf("cache-%d.cache.%s.svc:11211", i, w.namespace))
	}
	m := w.memcached()
	equal(w, "servers", m.Status.Servers, want)
	equal(w, "the last of the nodes", m.Status.Nodes[10], "cache-10")
}

func TestMembersRunUnderTheSupervisorOnTheirVolume(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).ExtraArgs("-v"), 1)
	pod := w.pod("cache-0")
	equal(w, "command", pod.Spec.Containers[0].Command, []string{
		"/supervisor/drainer", "supervise", "--dir=/data", "--memory-dir=/memory", "--port=11211", "--export-port=11212", "--termination-log=/dev/termination-log", "--grace-period=34s", "--",
		"memcached", "-m", "64", "-p", "11211", "-U", "0", "-v",
	})
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
	equal(w, "claim", pod.Spec.Volumes[i].PersistentVolumeClaim.ClaimName, claimName(0))
}
