package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// ahead is a clock that is ahead of the machine's, so that waits are over.
type ahead struct {
	clock.RealClock
	by time.Duration
}

func (a ahead) Now() time.Time                  { return time.Now().Add(a.by) }
func (a ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// onlyOnce lets a Job give up at its first failure.
func onlyOnce() *apitest.MemcachedBuilder {
	return apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) { s.Drain.BackoffLimit = new(int32) })
}

// isTriedAgainInTime waits for another attempt of the claim's drain, by an operator that
// starts a day later.
func (w *world) isTriedAgainInTime(claim types.UID) {
	w.Helper()
	first := w.jobOf(claim)
	w.stopOperator()
	w.clock = ahead{by: 24 * time.Hour}
	w.startOperator()
	w.eventually("another attempt, and a count", func() error {
		if j := w.jobOf(claim); j == nil || j.UID == first.UID {
			return errors.New("the Job is the first one")
		}
		if w.claim(1).Annotations[cachev1alpha1.AnnotationAttempts] == "" {
			return errors.New("nothing is counted")
		}
		return nil
	})
}

// No person asks for a retry, and a new operator makes it, too.
func TestDrainThatFailedForASurvivorComesRightByItself(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(onlyOnce(), 2)
	claim := w.claim(1)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer"))
	w.scale(1)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	if !strings.Contains(message, "failed attempts: 1, the next one is at ") {
		t.Errorf("it says %q", message)
	}
	w.isTriedAgainInTime(claim.UID)
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(1, claim.UID)
	equal(w, "result", w.settled(1).Status.LastDrains[0].Result, "Drained")
}

func TestMoveThatFailedComesRightByItself(t *testing.T) {
	tier.Second(t, "TestFailedMoveIsTriedAgainByItself")
	w := newNamespace(t)
	w.clock = ahead{by: 24 * time.Hour}
	w.startOperator()
	w.storageCluster(onlyOnce(), 1)
	kubes.Play(w.namespace, player.Fail(contract.ExitFailed, "StillStored", "clients still store items here"))
	w.scale(2)
	w.eventually("a count", func() error {
		if w.claim(0).Annotations[cachev1alpha1.AnnotationAttempts] == "" {
			return errors.New("nothing is counted")
		}
		return nil
	})
	kubes.Play(w.namespace, player.Succeed(3))
	w.settled(2)
	equal(w, "the count", w.claim(0).Annotations[cachev1alpha1.AnnotationAttempts], "")
}

// Each failed Job goes before its failure is counted, as if admission overwrote its ttlSecondsAfterFinished. The operator
// makes a second one at once, and waits before the third. A person's retry is obeyed at once.
func TestJobsThatVanishAreNotMadeWithoutAPause(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(onlyOnce(), 2)
	claim := w.claim(1)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer"))
	w.scale(1)
	w.eventually("a pause", func() error {
		for _, job := range w.jobs() {
			if job.Status.Failed > 0 {
				_ = admin.Delete(w.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationBackground))
			}
		}
		return w.drainIs(1, cachev1alpha1.DrainFailed, cachev1alpha1.ReasonJobVanished)
	})
	w.rests()
	made := 0
	for _, write := range w.journal.Writes() {
		if write.Verb == "create" && write.Resource == "jobs" && strings.Contains(write.Body, string(claim.UID)) {
			made++
		}
	}
	equal(w, "Jobs", made, 2)
	message := w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonDrainFailed)
	if !strings.Contains(message, "ttlSecondsAfterFinished") {
		t.Errorf("it says %q", message)
	}
	kubes.Play(w.namespace, player.Succeed(7))
	w.annotate(1, cachev1alpha1.DrainRetry)
	w.claimGone(1, claim.UID)
	equal(w, "result", w.settled(1).Status.LastDrains[0].Result, "Drained")
}
