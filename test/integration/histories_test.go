package integration

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

var (
	historySeed  = flag.Uint64("histories.seed", 0, "the seed of the first random history; 0 for any")
	historyCount = flag.Uint64("histories.count", 3, "how many random histories there are")
)

// TestRandomHistories has the actions of people and Kubernetes, in any order, on a Memcached and on a
// StatefulSet with a StatefulSetDrain. Every invariant holds after each step. When people take back their
// requests, and delete the pods that use deleted claims, as status advises, both get ready, and nothing is
// written any more.
func TestRandomHistories(t *testing.T) {
	tier.Second(t, "TestCrashPoints")
	t.Parallel()
	first := cmp.Or(*historySeed, 1+rand.Uint64N(1_000_000))
	for seed := first; seed < first+*historyCount; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &history{world: newWorld(t), rand: rand.New(rand.NewPCG(seed, 0))}
			t.Cleanup(func() { t.Logf("-histories.seed=%d: %s", seed, strings.Join(h.deeds, ", ")) })
			kubes.Play(h.namespace, func(d player.Drainer) player.Act {
				if strings.Contains(d.Claim, queue) {
					return allMoved(d)
				}
				return player.Succeed(7)(d)
			})
			m := apitest.MakeMemcached(name).Size(3).Storage("128Mi")
			if h.rand.IntN(3) == 0 {
				h.deeds, m = []string{"routers"}, m.With(routed)
			}
			h.create(m.Obj())
			h.create(queueSet())
			h.create(queueDrain(queue))
			for range 8 + h.rand.IntN(8) {
				h.deed()
			}
			h.endsWell()
		})
	}
}

// history is one of random deeds.
type history struct {
	*world
	rand  *rand.Rand
	deeds []string
}

// deed does one thing after some more changes of objects, or when none come.
func (h *history) deed() {
	h.Helper()
	for range h.rand.IntN(24) {
		select {
		case <-recorder.News(h.namespace):
		case <-time.After(100 * time.Millisecond):
		}
	}
	policies := []cachev1alpha1.DrainPolicy{cachev1alpha1.PolicyDrain, cachev1alpha1.PolicyRetain, cachev1alpha1.PolicyDelete}
	switch n := h.rand.IntN(4) + 1; h.rand.IntN(12) {
	case 0, 1:
		h.did("size %d", n)
		h.scale(int32(n))
	case 2, 3:
		h.did("replicas %d", n)
		h.scaleQueue(n)
	case 4, 5:
		deleteOne(h, "claim", h.claims())
	case 6:
		deleteOne(h, "pod", h.pods())
	case 7:
		deleteOne(h, "Job", h.jobs())
	case 8:
		if claims := h.claims(); len(claims) > 0 {
			c, word := &claims[h.rand.IntN(len(claims))], []string{"hold", "retry", "skip"}[h.rand.IntN(3)]
			h.did("%s %s", word, c.Name)
			h.try(c, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationDrain, word))
		}
	case 9:
		policy := policies[h.rand.IntN(3)]
		h.did("policy %s", policy)
		h.change(h.memcached(), fmt.Sprintf(`{"spec":{"drain":{"policy":%q}}}`, policy))
		h.change(h.stsDrain(), fmt.Sprintf(`{"spec":{"policy":%q}}`, policy))
	case 10:
		h.did("restart")
		h.restartOperator()
	case 11:
		paused := h.rand.IntN(2) == 0
		h.did("paused %v", paused)
		h.change(h.memcached(), fmt.Sprintf(`{"spec":{"paused":%v}}`, paused))
	}
}

func (h *history) did(format string, args ...any) {
	h.deeds = append(h.deeds, fmt.Sprintf(format, args...))
}

// try changes an object that may be gone.
func (h *history) try(object client.Object, patch string) {
	h.Helper()
	if err := admin.Patch(h.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch))); client.IgnoreNotFound(err) != nil {
		h.Fatalf("patch %s: %v", object.GetName(), err)
	}
}

// deleteOne deletes one of the objects, which may be gone.
func deleteOne[T any, P interface {
	*T
	client.Object
}](h *history, kind string, all []T) {
	h.Helper()
	if len(all) == 0 {
		return
	}
	object := P(&all[h.rand.IntN(len(all))])
	h.did("delete %s %s", kind, object.GetName())
	if err := admin.Delete(h.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		h.Fatalf("delete %s: %v", object.GetName(), err)
	}
}

// endsWell lets people do their remaining actions, until both owners are ready, and the operator rests.
func (h *history) endsWell() {
	h.Helper()
	h.change(h.memcached(), `{"spec":{"paused":false}}`)
	ready := func() error {
		for _, claim := range h.claims() {
			word := claim.Annotations[cachev1alpha1.AnnotationDrain]
			leftOver := slices.Contains(h.stsDrain().Status.LeftOver, claim.Name) && claim.DeletionTimestamp != nil
			switch {
			case leftOver && word != cachev1alpha1.DrainSkip:
				h.try(&claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:"skip"}}}`, cachev1alpha1.AnnotationDrain))
			case word == cachev1alpha1.DrainHold:
				h.try(&claim, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cachev1alpha1.AnnotationDrain))
			}
		}
		for _, pod := range h.pods() {
			if err := h.letsGo(&pod); err != nil {
				return err
			}
		}
		m, d := h.memcached(), h.stsDrain()
		for kind, of := range map[string]struct {
			conditions []metav1.Condition
			generation int64
		}{"Memcached": {m.Status.Conditions, m.Generation}, "StatefulSetDrain": {d.Status.Conditions, d.Generation}} {
			if c := meta.FindStatusCondition(of.conditions, cachev1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != of.generation {
				return fmt.Errorf("%s: Ready is %s", kind, asJSON(c))
			}
		}
		return nil
	}
	h.eventually("all is ready", ready)
	h.rests()
	h.always("all is ready", ready)
}

// letsGo deletes a member's pod that uses a deleted claim.
func (h *history) letsGo(pod *corev1.Pod) error {
	if of := metav1.GetControllerOf(pod); pod.DeletionTimestamp != nil || of == nil || of.Kind != "StatefulSet" {
		return nil
	}
	for _, c := range h.claims() {
		if c.DeletionTimestamp != nil && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name
		}) {
			return client.IgnoreNotFound(admin.Delete(h.Context(), pod, client.Preconditions{UID: &pod.UID}))
		}
	}
	return nil
}
