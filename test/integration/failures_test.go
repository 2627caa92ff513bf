package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

func fixedProgress(p contract.Progress) controllers.ProgressReader {
	return func(context.Context, string, string) (*contract.Progress, error) { return &p, nil }
}

// failedDrain scales from 3 to 2 with drainers that always fail.
func (w *world) failedDrain() *corev1.PersistentVolumeClaim {
	w.Helper()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, ofDrains(player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn")))
	claim := w.claim(2)
	w.scale(2)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	for _, part := range []string{claim.Name, "SourceCorrupt", "page 3 is torn", "cache.example.com/drain=retry"} {
		if !strings.Contains(message, part) {
			w.Errorf("the condition does not say %q: %s", part, message)
		}
	}
	return claim
}

// claimIsKept returns nil while the claim exists with the finalizer, and can be mounted.
func (w *world) claimIsKept(ordinal int) error {
	c := w.claim(ordinal)
	if c == nil || c.DeletionTimestamp != nil || !slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
		return fmt.Errorf("claim %s", asJSON(c))
	}
	return nil
}

func TestFailedDrainKeepsTheClaimAndItsPodsUntilARetry(t *testing.T) {
	w := newWorld(t)
	claim := w.failedDrain()
	w.always("the claim is kept", func() error { return w.claimIsKept(2) })
	first := w.jobOf(claim.UID)
	if first == nil || first.Status.Failed != 1 {
		t.Errorf("want one failed pod, its log to be read: %s", asJSON(first))
	}
	w.eventsOnce(cachev1alpha1.ReasonDrainFailed)

	w.annotate(2, cachev1alpha1.DrainRetry)
	w.eventually("a second failure", func() error {
		if j := w.jobOf(claim.UID); j == nil || j.UID == first.UID || j.Status.Failed == 0 {
			return fmt.Errorf("%s", asJSON(j))
		}
		if _, asked := w.claim(2).Annotations[cachev1alpha1.AnnotationDrain]; asked {
			return errors.New("the request is still there")
		}
		return w.drainIs(2, cachev1alpha1.DrainFailed, "SourceCorrupt")
	})
	second := w.jobOf(claim.UID)
	w.always("one retry for one request", func() error {
		if j := w.jobOf(claim.UID); j == nil || j.UID != second.UID {
			return fmt.Errorf("%s", asJSON(j))
		}
		return w.claimIsKept(2)
	})

	kubes.Play(w.namespace, player.Succeed(7))
	w.annotate(2, cachev1alpha1.DrainRetry)
	w.claimGone(2, claim.UID)
	m := w.settled(2)
	equal(w, "result", m.Status.LastDrains[0].Result, "Drained")
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
}

func TestFailedDrainIsGivenUpBySkip(t *testing.T) {
	w := newWorld(t)
	claim := w.failedDrain()
	w.annotate(2, cachev1alpha1.DrainSkip)
	w.claimGone(2, claim.UID)
	w.volumeGone(claim)
	m := w.settled(2)
	equal(w, "result", m.Status.LastDrains[0].Result, "Skipped")
	equal(w, "Jobs", len(w.jobs()), 0)
}

func TestHeldDrainBeginsWhenTheAnnotationIsRemoved(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	claim := w.claim(2)
	w.annotate(2, cachev1alpha1.DrainHold)
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainHeld)
	w.always("no Job", func() error {
		if n := len(w.jobs()); n != 0 {
			return fmt.Errorf("%d Jobs", n)
		}
		return w.claimIsKept(2)
	})
	w.annotate(2, "")
	w.claimGone(2, claim.UID)
	w.settled(2)
}

func TestClaimIsKeptUnlessTheReceiptProvesThatNothingIsLost(t *testing.T) {
	t.Parallel()
	spoilt := func(spoil func(*contract.Receipt)) player.Script {
		return func(d player.Drainer) player.Act {
			r := player.Receipt(d, 10)
			spoil(&r)
			return player.Act{Message: player.Message(r)}
		}
	}
	for what, script := range map[string]player.Script{
		"no receipt":        func(player.Drainer) player.Act { return player.Act{} },
		"no JSON":           func(player.Drainer) player.Act { return player.Act{Message: "done, 10 items"} },
		"another claim's":   spoilt(func(r *contract.Receipt) { r.Source = "another" }),
		"an item too many":  spoilt(func(r *contract.Receipt) { r.Found++ }),
		"not complete":      spoilt(func(r *contract.Receipt) { r.Complete = false }),
		"items rejected":    spoilt(func(r *contract.Receipt) { r.Rejected = 1 }),
		"items failed":      spoilt(func(r *contract.Receipt) { r.Failed = 1 }),
		"of a later format": spoilt(func(r *contract.Receipt) { r.Version = 2 }),
	} {
		t.Run(what, func(t *testing.T) {
			if what != "no receipt" && what != "another claim's" && what != "items failed" {
				tier.Second(t, "TestClaimIsKeptUnlessTheReceiptProvesThatNothingIsLost")
			}
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 2)
			kubes.Play(w.namespace, script)
			w.scale(1)
			w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
			if err := w.drainIs(1, cachev1alpha1.DrainFailed, cachev1alpha1.ReasonReceiptInvalid); err != nil {
				t.Error(err)
			}
			w.quiet()
			if err := w.claimIsKept(1); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDrainerThatDiesIsStartedAgain(t *testing.T) {
	tier.Second(t, "TestDrainThatFailedForASurvivorComesRightByItself")
	t.Parallel()
	for what, mishap := range map[string]player.Script{
		"its node is lost":        player.Vanish,
		"a survivor is away once": player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer"),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 2)
			claim := w.claim(1)
			tries := make(chan struct{}, 100)
			kubes.Play(w.namespace, func(d player.Drainer) player.Act {
				tries <- struct{}{}
				if len(tries) == 1 {
					return mishap(d)
				}
				return player.Succeed(3)(d)
			})
			w.scale(1)
			w.claimGone(1, claim.UID)
			m := w.settled(1)
			equal(w, "result", m.Status.LastDrains[0].Result, "Drained")
		})
	}
}

func TestSpecThatTheAPIServerRefusesStopsNoDrain(t *testing.T) {
	tier.Second(t, "TestTheModelSeesAndDoesWhatProductionDoes")
	w := newWorld(t)
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	w.change(w.memcached(), `{"spec":{"podTemplate":{"nodeSelector":{"not a label":"x"}}}}`)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonInvalidSpec)
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(2, claim.UID)
	w.change(w.memcached(), `{"spec":{"podTemplate":{"nodeSelector":null}}}`)
	w.settled(2)
}

func TestVolumeThatCannotBeReadIsGivenUpWhereTheSpecSaysSo(t *testing.T) {
	tier.Second(t, "TestVolumeThatCannotBeReadIsGivenUpWhereTheSpecSaysSo")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).OnUnrecoverable(cachev1alpha1.UnreadableRelease), 3)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "NodeRestarted", "the node went down before the member had saved"))
	claim := w.claim(2)
	w.scale(2)
	w.claimGone(2, claim.UID)
	w.volumeGone(claim)
	equal(w, "result", w.settled(2).Status.LastDrains[0].Result, "Unrecoverable")
	equal(w, "Jobs", len(w.jobs()), 0)

	kubes.Play(w.namespace, player.Fail(contract.ExitRejected, "ItemsRejected", "too large"))
	w.change(w.memcached(), `{"spec":{"drain":{"backoffLimit":0}}}`)
	w.scale(1)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	w.always("what can be read is kept", func() error { return w.claimIsKept(1) })
}
