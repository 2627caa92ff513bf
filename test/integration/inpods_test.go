package integration

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// inPods creates a cluster whose members have no volumes.
func (w *world) inPods(b *apitest.MemcachedBuilder, size int32) {
	w.Helper()
	w.create(b.Size(size).InPods().Obj())
	w.settled(size)
}

// annotatePod sets a person's annotation on a member's pod.
func (w *world) annotatePod(pod, key, value string) {
	w.Helper()
	w.change(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}}, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
}

// The pod has the only copy of its items: it stays until a mover has found nothing more, however often movers fail.
func TestAMemberWithoutAVolumeStaysUntilItsItemsAreMoved(t *testing.T) {
	w := newWorld(t)
	w.inPods(patient(), 3)
	equal(w, "claims", len(w.claims()), 0)
	equal(w, "finalizers", len(w.memcached().Finalizers), 0)
	equal(w, "the list", w.listed(), w.ring(3))

	kubes.Play(w.namespace, ofLeaving(player.Hang))
	w.scale(2)
	w.leaves(2)
	w.always("the member runs on", func() error { return w.replicas(3) })

	kubes.Play(w.namespace, ofLeaving(player.Fail(contract.ExitUsage, "BadArguments", "no such flag")))
	w.eventually("a mover that has failed", func() error {
		for _, j := range w.moves() {
			if j.Status.Failed > 0 {
				return nil
			}
		}
		return errors.New("none")
	})
	w.always("the member still runs on", func() error { return w.replicas(3) })

	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	w.annotatePod("cache-2", cachev1alpha1.AnnotationMove, cachev1alpha1.MoveRetry)
	m := w.settled(2)
	equal(w, "the list", m.Status.Servers, w.ring(2))
	if w.pod("cache-2") != nil || len(w.jobs()) != 0 {
		t.Errorf("a pod or Jobs are left\n%s", w.picture())
	}
	w.eventsOnce("Moved")
	if last := m.Status.LastDrains; len(last) != 1 || last[0].Result != "Moved" || last[0].Moved != 7 || last[0].NotMoved != nil {
		t.Errorf("the last drains are %s", asJSON(last))
	}

	w.scale(3)
	w.settled(3)
	w.restsWithoutAWrite()

	w.delete(w.memcached())
	w.nothingLeft()
}

// A pod that replaces another one is empty: nothing of it is moved, also after a ring change.
func TestANewPodWithoutAVolumeCountsAsEmpty(t *testing.T) {
	tier.Second(t, "TestAMemberWithoutAVolumeStaysUntilItsItemsAreMoved")
	w := newWorld(t)
	w.inPods(patient(), 2)
	w.scale(3)
	w.settled(3)
	before := w.pod("cache-1").UID
	begin := len(w.journal.Writes())
	w.delete(w.pod("cache-1"))
	w.eventually("another pod", func() error {
		if p := w.pod("cache-1"); p == nil || p.UID == before || p.Annotations[cachev1alpha1.AnnotationMoved] == "" {
			return errors.New("not yet")
		}
		return nil
	})
	w.settled(3)
	equal(w, "Jobs since then", w.writesOf("jobs", begin), 0)
}

// The cases are the ways to end the wait for a leaving member without a volume, and attempts that don't end
// it.
func TestAMemberWithoutAVolumeIsGivenUp(t *testing.T) {
	tier.Second(t, "TestAMemberWithoutAVolumeStaysUntilItsItemsAreMoved")
	for what, gives := range map[string]func(w *world){
		"a person skips it":  func(w *world) { w.annotatePod("cache-2", cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip) },
		"move is turned off": func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"moves":"Off"}}}`) },
		"its pod is deleted": func(w *world) { w.delete(w.pod("cache-2")) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.inPods(patient(), 3)
			kubes.Play(w.namespace, ofLeaving(player.Hang))
			w.scale(2)
			w.leaves(2)
			gives(w)
			m := w.settled(2)
			result := "NotMoved"
			if what == "a person skips it" {
				result = "Skipped"
			}
			if last := m.Status.LastDrains; len(last) != 1 || last[0].Claim != "cache-2" || last[0].Result != result || last[0].NotMoved != nil {
				t.Errorf("the last drains are %s, want one of cache-2, %s, with an unknown number", asJSON(last), result)
			}
			w.eventsOnce("NotMoved")
			equal(w, "the member's pod", w.pod("cache-2") == nil, true)
		})
	}
}

// A size of 0 loses all items, and an event says so.
func TestSizeZeroWithoutVolumesSaysWhatIsLost(t *testing.T) {
	tier.Second(t, "TestAMemberWithoutAVolumeStaysUntilItsItemsAreMoved")
	w := newWorld(t)
	w.inPods(patient(), 3)
	w.scale(0)
	w.settled(0)
	w.eventsOnce("ItemsLost")
	w.condition(cachev1alpha1.ConditionAvailable, "False", cachev1alpha1.ReasonScaledToZero)
	w.scale(2)
	w.settled(2)
	equal(w, "the list", w.listed(), w.ring(2))
}

// leavingPod waits for member 1 of a paused cluster without volumes, and marks it as leaving. Nothing follows.
func (w *world) leavingPod(cluster string) {
	w.Helper()
	w.eventually("member 1 of "+cluster, func() error {
		if w.pod(cluster+"-1") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	w.change(&cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, `{"spec":{"paused":true}}`)
	w.eventually(cluster+" is paused", func() error {
		for _, m := range w.clusters() {
			if c := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionProgressing); m.Name == cluster && c != nil && c.Reason == cachev1alpha1.ReasonPaused {
				return nil
			}
		}
		return errors.New("not yet")
	})
	w.annotatePod(cluster+"-1", cachev1alpha1.AnnotationLeaving, "2030-01-02T03:04:05Z")
}
