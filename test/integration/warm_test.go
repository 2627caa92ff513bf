package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// warmedFrom is a cluster that is filled from another cache.
func warmedFrom(from cachev1alpha1.WarmSource) *apitest.MemcachedBuilder {
	return apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) { s.WarmFrom = &from })
}

// byHand is a cache that no operator made.
func byHand() cachev1alpha1.WarmSource {
	return cachev1alpha1.WarmSource{
		Servers: []string{"old-0.old:11211", "old-1.old:11211"}, Routing: &cachev1alpha1.WarmRouting{Client: "dalli"},
		TLS: &cachev1alpha1.WarmTLS{SecretName: "old-ca"}, Auth: &cachev1alpha1.AuthSpec{SecretName: "old-login"}, Until: cachev1alpha1.WarmReady,
	}
}

// ofWarming lets warmings follow the script, and drains and moves succeed.
func ofWarming(script player.Script) player.Script {
	return func(d player.Drainer) player.Act {
		if d.From == "" {
			return player.Succeed(1)(d)
		}
		return script(d)
	}
}

func (w *world) warmings() []batchv1.Job {
	return slices.DeleteFunc(w.jobs(), func(j batchv1.Job) bool { return !strings.Contains(j.Name, "-warm-") })
}

// warms waits for the Job of the warming.
func (w *world) warms() (job batchv1.Job) {
	w.Helper()
	w.eventually("the Job of a warming", func() error {
		all := w.warmings()
		if len(all) != 1 {
			return fmt.Errorf("%d Jobs", len(all))
		}
		job = all[0]
		return nil
	})
	return job
}

// warmPhase waits for the phase of the warming.
func (w *world) warmPhase(phase cachev1alpha1.WarmPhase) (s *cachev1alpha1.WarmStatus) {
	w.Helper()
	w.eventually(fmt.Sprintf("the warming is %s", phase), func() error {
		if s = w.memcached().Status.Warm; s == nil || s.Phase != phase {
			return fmt.Errorf("it is %s", asJSON(s))
		}
		return nil
	})
	return s
}

func (w *world) askWarm(value string) {
	w.Helper()
	w.change(w.memcached(), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationWarm, value))
}

func TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold(t *testing.T) {
	w := newWorld(t)
	kubes.Play(w.namespace, player.Hang)
	w.create(warmedFrom(byHand()).Storage("1Gi").Size(2).Obj())
	job := w.warms()
	equal(w, "what the Job reads", slices.Contains(job.Spec.Template.Spec.Containers[0].Command, "--from=memcached:old-0.old:11211,old-1.old:11211"), true)
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonWarming)
	w.eventually("phase Warming", func() error {
		if p := w.memcached().Status.Phase; p != cachev1alpha1.PhaseWarming {
			return errors.New(string(p))
		}
		return nil
	})
	equal(w, "servers on the list of a cold cluster", len(w.listed()), 0)
	w.drainRuns(w.memcached().UID)
	w.rests() // until the operator has seen it, a change of the size comes first
	w.scale(3)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForMove)
	w.always("the size waits for the Job", func() error { return w.replicasAre(2) })
	kubes.Play(w.namespace, player.Succeed(5))
	m := w.settled(3)
	equal(w, "the list of a warm cluster", w.listed(), w.ring(3))
	if s := m.Status.Warm; s == nil || s.Phase != cachev1alpha1.WarmDone || s.Last == nil || s.Last.Added != 5 || s.Last.Jobs != 1 {
		t.Errorf("the warming is %s", asJSON(s))
	}
	w.eventsOnce("WarmingStarted")
	w.eventsOnce("Warmed")
	equal(w, "Jobs", len(w.jobs()), 0)
	w.restsWithoutAWrite()

	w.askWarm(cachev1alpha1.WarmAgain)
	w.eventually("another copy", func() error {
		m := w.memcached()
		if _, asked := m.Annotations[cachev1alpha1.AnnotationWarm]; asked || m.Status.Warm.Last.Jobs != 2 || m.Status.Warm.Phase != cachev1alpha1.WarmDone {
			return errors.New(asJSON(m.Status.Warm))
		}
		return nil
	})
	w.settled(3)
}

func TestASourceThatCannotBeCopiedSaysWhy(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	for name, test := range map[string]struct {
		act      player.Script
		degraded string
		says     string
	}{
		"it can't be listed": {player.Fail(contract.ExitUsage, contract.ReasonListingRefused, "-X"), cachev1alpha1.ReasonListingRefused, "onMiss"},
		"it is too large":    {player.Fail(contract.ExitUsage, contract.ReasonTargetTooSmall, "64.0 MiB of 128.0 MiB"), cachev1alpha1.ReasonTargetTooSmall, "onShortage"},
		"it is away":         {player.Fail(contract.ExitUnreachable, cachev1alpha1.ReasonSourceUnreachable, "old-0 is silent"), cachev1alpha1.ReasonWarmStuck, "old-0 is silent"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			kubes.Play(w.namespace, ofWarming(test.act))
			from := byHand()
			from.Until = cachev1alpha1.WarmListed
			w.create(warmedFrom(from).Storage("1Gi").Size(2).Obj())
			if says := w.condition(cachev1alpha1.ConditionDegraded, "True", test.degraded); !strings.Contains(says, test.says) {
				t.Errorf("it says %s, want a word of %s", says, test.says)
			}
			equal(w, "the list", w.listed(), w.ring(2)) // clients don't wait for it
			w.scale(3)                                  // nor does the size
			w.eventually("three members", func() error { return w.replicas(3) })
			w.askWarm(cachev1alpha1.WarmSkip)
			w.settled(3)
			w.warmPhase(cachev1alpha1.WarmSkipped)
			equal(w, "Jobs", len(w.jobs()), 0)
		})
	}
}

func TestARouterAsksASourceThatCannotBeListed(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	kubes.Play(w.namespace, ofWarming(player.Fail(contract.ExitUsage, contract.ReasonListingRefused, "-X")))
	from := byHand()
	from.OnMiss, from.Until = true, cachev1alpha1.WarmListed
	w.create(warmedFrom(from).With(routed).Storage("1Gi").Size(2).Obj())
	w.warmPhase(cachev1alpha1.WarmOnMiss)
	w.eventsOnce("WarmedOnMiss")
}

func TestWarmFromIsRemovedOrChangedInTheMiddle(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	kubes.Play(w.namespace, player.Hang)
	w.create(warmedFrom(byHand()).Storage("1Gi").Size(2).Obj())
	first := w.warms()
	w.restartOperator()
	w.rests()
	equal(w, "the Job after a restart of the operator", w.warms().UID, first.UID)
	w.change(w.memcached(), `{"spec":{"warmFrom":{"servers":["new:11211"]}}}`)
	w.eventually("a Job that reads the other source", func() error {
		for _, j := range w.warmings() {
			if j.UID != first.UID && slices.Contains(j.Spec.Template.Spec.Containers[0].Command, "--from=memcached:new:11211") {
				return nil
			}
		}
		return errors.New("not yet")
	})
	w.scale(0)
	w.eventually("a cluster that hibernates copies nothing", func() error {
		if n := len(w.warmings()); n > 0 {
			return fmt.Errorf("%d Jobs", n)
		}
		return w.replicas(0)
	})
	w.scale(2)
	w.warms()
	w.change(w.memcached(), `{"spec":{"warmFrom":null}}`)
	m := w.settled(2)
	equal(w, "the list", w.listed(), w.ring(2))
	equal(w, "the status", m.Status.Warm == nil, true)
	equal(w, "Jobs", len(w.jobs()), 0)
}

func TestAClusterIsFilledFromAnotherMemcached(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	kubes.Play(w.namespace, player.Succeed(3))
	w.create(warmedFrom(cachev1alpha1.WarmSource{Memcached: "green"}).Storage("1Gi").Size(2).Obj())
	w.condition(cachev1alpha1.ConditionReady, "False", cachev1alpha1.ReasonSourceNotThere)
	w.create(apitest.MakeMemcached("green").Storage("1Gi").Size(2).Obj())
	w.eventually("the other Memcached serves", func() error {
		for _, m := range w.clusters() {
			if m.Name == "green" && len(m.Status.Servers) == 2 {
				return nil
			}
		}
		return errors.New("not yet")
	})
	w.restartOperator() // it looks again after half a minute
	w.settled(2)
	w.warmPhase(cachev1alpha1.WarmDone)
}

// backup creates claims, as if of VolumeSnapshots.
func (w *world) backup(day string, claims int) {
	w.Helper()
	for i := range claims {
		w.create(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("%s-%d", day, i), Labels: map[string]string{"backup": day}},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
		})
	}
}

// ofBackup are the claims of a day.
func ofBackup(day string) cachev1alpha1.WarmSource {
	return cachev1alpha1.WarmSource{Volumes: &cachev1alpha1.WarmVolumes{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"backup": day}}}}
}

func TestAClusterIsFilledFromClaimsOneAfterTheOther(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	var played cast
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		if !d.ReadOnly || d.From != "volumes:/data" {
			t.Errorf("it reads %+v", d)
		}
		return played.script(d)
	})
	w.backup("monday", 2)
	w.backup("tuesday", 1)
	w.create(warmedFrom(ofBackup("monday")).Storage("1Gi").Size(2).Obj())
	w.settled(2)
	s := w.warmPhase(cachev1alpha1.WarmDone)
	equal(w, "Jobs that copied", s.Last.Jobs, 2)
	equal(w, "items", s.Last.Added, 20)
	equal(w, "what was read", played.take(), []string{"count monday-0 among 2", "count monday-1 among 2", "drain monday-0 among 2", "drain monday-1 among 2"})
}

// The items of all claims are counted before the first claim is copied, and status gives the numbers.
func TestClaimsThatAreTooLargeTogetherAreNotCopied(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	kubes.Play(w.namespace, ofWarming(func(d player.Drainer) player.Act {
		if d.Claim == "monday-1" && d.Counts {
			return player.Fail(contract.ExitUsage, contract.ReasonTargetTooSmall, "cache-0 would get 70 MiB and has room for 64 MiB")(d)
		}
		if !d.Counts {
			t.Errorf("%s is copied", d.Claim)
		}
		return player.Succeed(35)(d)
	}))
	w.backup("monday", 2)
	w.create(warmedFrom(ofBackup("monday")).Storage("1Gi").Size(2).Obj())
	if says := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonTargetTooSmall); !strings.Contains(says, "70 MiB") {
		t.Errorf("it says %s", says)
	}
	kubes.Play(w.namespace, player.Succeed(10))
	w.scale(3) // for another ring everything is counted again
	w.settled(3)
	equal(w, "items", w.warmPhase(cachev1alpha1.WarmDone).Last.Added, 20)
}

// A source that is gone holds a cluster back only for as long as the spec says.
func TestASourceThatIsGoneHoldsAClusterBackForItsPatience(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	from := cachev1alpha1.WarmSource{Memcached: "green", Until: cachev1alpha1.WarmReady, Patience: &metav1.Duration{Duration: time.Second}}
	w.create(warmedFrom(from).Storage("1Gi").Size(2).Obj())
	m := w.settled(2)
	equal(w, "the list", w.listed(), w.ring(2))
	equal(w, "the reason", m.Status.Warm.Reason, cachev1alpha1.ReasonSourceNotThere)
	w.warmPhase(cachev1alpha1.WarmGivenUp)
	w.eventsOnce("WarmingGivenUp")
	w.eventually("advice", func() error {
		if a := w.memcached().Status.Advice; len(a) != 1 || a[0].Reason != cachev1alpha1.ReasonNotFilled {
			return errors.New(asJSON(a))
		}
		return nil
	})
	w.restsWithoutAWrite()
}

func TestAClusterWithoutVolumesIsFilled(t *testing.T) {
	tier.Second(t, "TestAClusterIsFilledBeforeItIsReadyAndBeforeItsClientsAreTold")
	w := newWorld(t)
	kubes.Play(w.namespace, ofWarming(player.Fail(contract.ExitUsage, contract.ReasonTargetTooSmall, "too small")))
	w.create(warmedFrom(byHand()).InPods().Size(2).Obj())
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonTargetTooSmall)
	equal(w, "servers on the list", len(w.listed()), 0)
	kubes.Play(w.namespace, player.Succeed(4))
	w.askWarm(cachev1alpha1.WarmRetry)
	w.settled(2)
	w.warmPhase(cachev1alpha1.WarmDone)
	equal(w, "the list", w.listed(), w.ring(2))
	if _, asked := w.memcached().Annotations[cachev1alpha1.AnnotationWarm]; asked {
		t.Error("the person's word is still there")
	}
	w.scale(0)
	w.settled(0)
	w.scale(2)
	w.settled(2)
	equal(w, "Jobs after the cluster was stopped", len(w.warmings()), 0)
	w.restsWithoutAWrite()
}
