package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// storageCluster creates a cluster with storage and waits for it.
func (w *world) storageCluster(b *apitest.MemcachedBuilder, size int32) {
	w.Helper()
	w.create(b.Size(size).Storage("128Mi").Obj())
	w.settled(size)
}

func TestScaleDownLetsTheClaimGoOnlyByItsReceipt(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Linger(w.namespace, true)
	kubes.Play(w.namespace, player.Hang)
	claim := w.claim(2)
	before, began := len(w.journal.Writes()), time.Now()

	w.scale(2)
	w.eventually("the drain waits for the pod", func() error {
		return w.drainIs(2, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonPodPresent)
	})
	equal(w, "Jobs while the member shuts down", len(w.jobs()), 0)

	kubes.Linger(w.namespace, false)
	w.eventually("a Job", func() error {
		if w.jobOf(claim.UID) == nil {
			return errors.New("none")
		}
		return nil
	})
	if w.pod("cache-2") != nil {
		t.Error("the Job began before the member's pod was gone")
	}
	w.eventually("the drain's start in status", func() error { return w.drainIs(2, cachev1alpha1.DrainStarting, "") })
	w.always("the claim is kept without a receipt", func() error {
		if c := w.claim(2); c == nil || c.DeletionTimestamp != nil || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})

	kubes.Play(w.namespace, player.Succeed(1234))
	w.claimGone(2, claim.UID)
	w.volumeGone(claim)
	m := w.settled(2)
	writes := slices.DeleteFunc(w.journal.Writes()[before:], func(write operator.Write) bool { return write.Status >= 300 })
	t.Logf("%d API writes for a scale-down: %v", len(writes), writes)
	// Details of a status are written together every two seconds. So there are more writes on a slow machine.
	if most := 15 + int(time.Since(began)/(2*time.Second)); len(writes) > most {
		t.Errorf("a scale-down took %d writes, want %d at most", len(writes), most)
		for _, write := range writes {
			t.Logf("%s: %d %s", write, write.Status, write.Body)
		}
	}
	equal(w, "Jobs at the end", len(w.jobs()), 0)
	if len(m.Status.LastDrains) != 1 {
		t.Fatalf("want one drain in lastDrains: %s", asJSON(m.Status.LastDrains))
	}
	last := m.Status.LastDrains[0]
	equal(w, "receipt in lastDrains",
		[]any{last.Claim, last.ClaimUID, last.Result, last.Found, last.Added},
		[]any{claim.Name, string(claim.UID), "Drained", int64(1234), int64(1234)})
	w.eventsOnce("DrainStarted", "Drained", "Released")
}

// drainIs returns nil if status has the drain in this phase.
func (w *world) drainIs(ordinal int32, phase cachev1alpha1.DrainPhase, reason string) error {
	m := w.memcached()
	if m == nil {
		return errors.New("no Memcached")
	}
	for _, d := range m.Status.Drains {
		if d.Ordinal == ordinal && d.Phase == phase && d.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("drains are %s", asJSON(m.Status.Drains))
}

// eventsOnce waits for these events, and fails if one comes twice.
func (w *world) eventsOnce(reasons ...string) {
	w.Helper()
	for _, reason := range reasons {
		w.eventually("event "+reason, func() error {
			n := 0
			for _, e := range w.events() {
				if e.Reason == reason {
					n++
					if e.Series != nil {
						n += int(e.Series.Count)
					}
				}
			}
			if n != 1 {
				return fmt.Errorf("seen %d times", n)
			}
			return nil
		})
	}
}

// An autoscaler that changes the size again removes members that never ran. Their volumes don't show that, so
// the drainer gets a flag.
func TestADrainerIsToldOfAMemberThatNeverStarted(t *testing.T) {
	tier.Second(t, "TestOnlyTheDrainerOfAMemberThatNeverStartedIsToldSo")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Hold(w.namespace, true)
	kubes.Play(w.namespace, player.Hang)
	w.scale(3)
	w.eventually("member 2 has a node", func() error {
		if p := w.pod("cache-2"); p == nil || p.Spec.NodeName == "" {
			return errors.New("not yet")
		}
		return nil
	})
	never, started := w.claim(2), w.claim(1)
	w.scale(2)
	w.drainRuns(never.UID)
	equal(w, "told of the member that never started", w.tellsNeverStarted(never.UID), true)
	kubes.Play(w.namespace, player.Succeed(0))
	w.claimGone(2, never.UID)
	w.settled(2)

	kubes.Hold(w.namespace, false)
	kubes.Play(w.namespace, player.Hang)
	w.scale(1)
	w.drainRuns(started.UID)
	equal(w, "told so of a member that started", w.tellsNeverStarted(started.UID), false)
	kubes.Play(w.namespace, player.Succeed(7))
	w.settled(1)
}

func (w *world) tellsNeverStarted(claim types.UID) bool {
	return slices.Contains(w.jobOf(claim).Spec.Template.Spec.Containers[0].Command, "--never-started")
}
