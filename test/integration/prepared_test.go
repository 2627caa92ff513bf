package integration

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// preparing is a cluster that is told to shrink from three to two. The mover of member 2 does not start. The
// mover moves seven items when it may begin.
func preparing(t *testing.T) (*world, *corev1.PersistentVolumeClaim) {
	t.Helper()
	w := newWorld(t)
	w.storageCluster(patient(), 3)
	claim := w.claim(2)
	kubes.Play(w.namespace, ofLeaving(player.Succeed(7)))
	kubes.HoldDrainers(w.namespace, true)
	w.scale(2)
	w.prepares(2)
	return w, claim
}

// prepares waits until the leaving member's mover has a pod.
func (w *world) prepares(ordinal int32) {
	w.Helper()
	w.eventually("a mover is prepared", func() error {
		if _, err := w.mover(); err != nil {
			return err
		}
		return w.drainIs(ordinal, cachev1alpha1.DrainLeaving, "")
	})
}

// mover returns the pod of the only prepared mover.
func (w *world) mover() (*corev1.Pod, error) {
	for _, pod := range w.pods() {
		if _, is := pod.Annotations[cachev1alpha1.AnnotationBegin]; is {
			return &pod, nil
		}
	}
	return nil, errors.New("there is no mover")
}

// A mover's pod takes time to start. Until it has started, clients are told nothing, and nothing is moved.
func TestClientsAreToldWhenMoversAreReady(t *testing.T) {
	tier.Second(t, "TestTheListWaitsForPreparedMovers")
	w, claim := preparing(t)
	w.always("clients are told of three, and the mover waits", func() error {
		pod, err := w.mover()
		if err == nil && pod.Annotations[cachev1alpha1.AnnotationBegin] != "" {
			err = fmt.Errorf("its annotations are %v", pod.Annotations)
		}
		return errors.Join(err, w.serverCount(3), w.replicas(3))
	})
	kubes.HoldDrainers(w.namespace, false)
	w.claimGone(2, claim.UID)
	if last := w.settled(2).Status.LastDrains; len(last) != 1 || last[0].Moved != 7 {
		t.Errorf("the last drains are %s", asJSON(last))
	}
}

// Clients are told without a mover that never starts. A mover that starts late begins at once.
func TestClientsAreToldWithoutAMoverThatDoesNotStart(t *testing.T) {
	tier.Second(t, "TestTheEndOfThePreparationBringsAPlan")
	w, claim := preparing(t)
	w.eventually("clients are told of two", func() error { return w.serverCount(2) })
	if err := w.replicas(3); err != nil {
		t.Error(err)
	}
	kubes.HoldDrainers(w.namespace, false)
	w.claimGone(2, claim.UID)
	if last := w.settled(2).Status.LastDrains; len(last) != 1 || last[0].Moved != 7 {
		t.Errorf("the last drains are %s", asJSON(last))
	}
}

func TestAnOperatorThatStartsFindsPreparedMovers(t *testing.T) {
	tier.Second(t, "TestCrashPoints")
	w, claim := preparing(t)
	w.stopOperator()
	kubes.HoldDrainers(w.namespace, false)
	w.always("the mover waits", func() error {
		_, err := w.mover()
		return errors.Join(err, w.serverCount(3))
	})
	w.startOperator()
	w.claimGone(2, claim.UID)
	w.settled(2)
}

// Movers that wait don't delay a person's decision: they are deleted.
func TestPreparedMoversHoldNothingUp(t *testing.T) {
	tier.Second(t, "TestTheEndOfThePreparationBringsAPlan")
	for what, happens := range map[string]func(w *world){
		"a person wants it again":     func(w *world) { w.scale(3) },
		"a person gives its items up": func(w *world) { w.annotate(2, cachev1alpha1.DrainSkip) },
		"move is switched off":        func(w *world) { w.change(w.memcached(), `{"spec":{"routing":{"moves":"Off"}}}`) },
		"a survivor is lost":          func(w *world) { w.delete(w.pod("cache-0")) },
		"all stop":                    func(w *world) { w.scale(0); w.eventually("none", func() error { return w.replicas(0) }); w.scale(2) },
	} {
		t.Run(what, func(t *testing.T) {
			w, claim := preparing(t)
			happens(w)
			w.eventually("it leaves, or clients are told", func() error {
				if c := w.claim(2); c == nil || c.UID != claim.UID {
					return nil
				}
				return w.serverCount(2)
			})
			kubes.HoldDrainers(w.namespace, false)
			w.claimGone(2, claim.UID)
			w.settled(*w.memcached().Spec.Size)
			equal(w, "Jobs that are left", len(w.jobs()), 0)
		})
	}
}

// A member that joins is on the list when the movers of the others are prepared. Then clients miss nothing for
// long.
func TestAJoiningMemberIsListedWhenTheOthersMoversAreReady(t *testing.T) {
	tier.Second(t, "TestAJoiningMemberIsListedWhenMoversArePrepared")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Succeed(7))
	kubes.HoldDrainers(w.namespace, true)
	w.scale(3)
	w.eventually("a mover is prepared", func() error {
		_, err := w.mover()
		return err
	})
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonMoveWaits)
	w.always("clients are told of two, and the movers wait", func() error {
		pod, err := w.mover()
		if err == nil && pod.Annotations[cachev1alpha1.AnnotationBegin] != "" {
			err = fmt.Errorf("its annotations are %v", pod.Annotations)
		}
		return errors.Join(err, w.serverCount(2), w.replicas(3))
	})
	kubes.HoldDrainers(w.namespace, false)
	w.settled(3)
	if err := w.serverCount(3); err != nil {
		t.Error(err)
	}
}

// A mover that never starts does not keep a member off the list.
func TestAJoiningMemberIsListedWithoutMoversThatDoNotStart(t *testing.T) {
	tier.Second(t, "TestTheEndOfThePreparationBringsAPlan")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Succeed(7))
	kubes.HoldDrainers(w.namespace, true)
	w.scale(3)
	w.eventually("clients are told of three", func() error { return w.serverCount(3) })
	kubes.HoldDrainers(w.namespace, false)
	w.settled(3)
}
