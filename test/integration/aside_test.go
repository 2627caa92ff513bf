package integration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// volumeOf returns the claim's volume, or nil if it is gone.
func (w *world) volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	w.Helper()
	v := &corev1.PersistentVolume{}
	return found(w, v, admin.Get(w.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, v))
}

// aside returns the claim that took over the volume of another, or nil.
func (w *world) aside(of *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	for _, c := range w.claims() {
		if c.Annotations[cachev1alpha1.AnnotationAsideOf] == string(of.UID) {
			return &c
		}
	}
	return nil
}

// drainsAside waits for a drainer of the claim's volume, on another claim.
func (w *world) drainsAside(of *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	w.Helper()
	var aside *corev1.PersistentVolumeClaim
	w.eventually("the volume bound to another claim", func() error {
		if aside = w.aside(of); aside == nil || aside.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("%s", asJSON(aside))
		}
		return nil
	})
	w.drainRuns(aside.UID)
	if v := w.volumeOf(of); aside.Spec.VolumeName != of.Spec.VolumeName || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		w.Errorf("claim %s has volume %s, of policy %s", aside.Name, aside.Spec.VolumeName, v.Spec.PersistentVolumeReclaimPolicy)
	}
	return aside
}

func TestClaimDeletedBeforeItsDrainIsDrainedFromAnother(t *testing.T) {
	t.Parallel()
	for what, deletion := range map[string]func(w *world, delete func()){
		"the operator at work": func(_ *world, delete func()) { delete() },
		"the operator down":    func(w *world, delete func()) { w.stopOperator(); delete(); w.startOperator() },
	} {
		t.Run(what, func(t *testing.T) {
			if what != "the operator at work" {
				tier.Second(t, "TestClaimDeletedBeforeItsDrainIsDrainedFromAnother")
			}
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 3)
			kubes.Play(w.namespace, player.Hang)
			kubes.Linger(w.namespace, true)
			claim := w.claim(2)
			w.scale(2)
			w.eventually("the drain waits for the pod", func() error {
				return w.drainIs(2, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonPodPresent)
			})
			deletion(w, func() { w.delete(claim) })
			w.drain(2, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonSettingAside, says("when no pod uses it any more"))
			kubes.Linger(w.namespace, false)
			aside := w.drainsAside(claim)
			w.claimGone(2, claim.UID)
			kubes.Play(w.namespace, player.Succeed(12))
			w.volumeGone(claim)
			m := w.settled(2)
			equal(w, "drains that ended", len(m.Status.LastDrains), 1)
			equal(w, "claim", m.Status.LastDrains[0].Claim, aside.Name)
			equal(w, "result", m.Status.LastDrains[0].Result, "Drained")
			w.eventsOnce("SetAside")
		})
	}
}

func TestClaimDeletedByItsPodsOwnerReferenceIsDrainedFromAnother(t *testing.T) {
	tier.Second(t, "TestClaimDeletedBeforeItsDrainIsDrainedFromAnother")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	claim := w.claim(2)
	w.stopOperator()
	// If a person edits the StatefulSet, it stays edited until the operator runs again.
	w.change(w.statefulSet(), `{"spec":{"replicas":2,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete","whenDeleted":"Retain"}}}`)
	w.eventually("the claim deleted", func() error {
		if c := w.claim(2); c == nil || c.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	w.scale(2)
	kubes.Play(w.namespace, player.Succeed(12))
	w.startOperator()
	w.volumeGone(claim)
	m := w.settled(2)
	equal(w, "items", m.Status.LastDrains[0].Added, 12)
}

// A claim that is being deleted keeps its member's next pod from being created. Without its label the cache
// doesn't have the claim, and no pod shows that it exists.
func TestADeletedClaimWithoutItsLabelIsDrainedFromAnother(t *testing.T) {
	tier.Second(t, "TestClaimDeletedBeforeItsDrainIsDrainedFromAnother")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	lost := w.claim(1)
	w.delete(lost)
	w.stopOperator() // otherwise the operator would restore the label while the pod runs
	w.change(w.claim(1), fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster))
	w.delete(w.pod("cache-1"))
	w.eventually("no pod", func() error {
		if w.pod("cache-1") != nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.startOperator()
	w.claimGone(1, lost.UID)
	last := w.settled(2).Status.LastDrains
	if len(last) != 1 || last[0].Result != "Drained" {
		t.Errorf("the last drains are %s", asJSON(last))
	}
}

func TestMembersClaimDeletedByAPersonIsDrainedIntoTheMembersAndItself(t *testing.T) {
	tier.Second(t, "TestAVolumeOutlivesItsClaimThatWasDeletedBeforeItsDrain")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	lost := w.claim(1)
	w.delete(lost)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonClaimDeleted)
	if !strings.Contains(message, lost.Name) {
		t.Errorf("the condition does not name the claim: %s", message)
	}
	w.always("nothing is moved while the member runs", func() error {
		if c := w.claim(1); c == nil || c.UID != lost.UID || len(w.claims()) != 2 {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	var seen player.Drainer
	release := make(chan struct{})
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		select {
		case <-release:
			return player.Succeed(7)(d)
		default:
			seen = d
			return player.Act{Wait: true}
		}
	})
	w.delete(w.pod("cache-1"))
	w.drainsAside(lost)
	w.eventually("the member on a fresh volume", func() error {
		if c := w.claim(1); c == nil || c.UID == lost.UID || w.pod("cache-1") == nil {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	close(release)
	w.volumeGone(lost)
	m := w.settled(2)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
	equal(w, "items", m.Status.LastDrains[0].Added, 7)
	equal(w, "members that take them", len(seen.Servers), 2)
}

// A quota refuses the claim that would take over a volume. Another volume, which doesn't need this claim, is
// drained. When the quota allows the claim, the first volume is set aside, and drained.
func TestAVolumeThatAQuotaKeepsFromBeingSetAsideHoldsUpNoOther(t *testing.T) {
	tier.Second(t, "TestAMembersVolumeThatCannotBeSetAsideHoldsUpNothingElse")
	w := newWorld(t)
	cluster := apitest.MakeMemcached(name)
	cluster.Obj().Spec.Routing.Patience = &metav1.Duration{}
	w.storageCluster(cluster, 3)
	kubes.Play(w.namespace, player.Succeed(7))
	lost, left := w.claim(1), w.claim(2)
	w.annotate(2, cachev1alpha1.DrainHold)
	w.scale(2)
	w.eventually("a drain that a person holds", func() error { return w.drainIs(2, cachev1alpha1.DrainHeld, cachev1alpha1.ReasonHeld) })
	hard := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("3")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	w.create(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	if err := admin.Status().Update(w.Context(), quota); err != nil {
		t.Fatal(err)
	}
	w.delete(lost)
	w.delete(w.pod("cache-1"))
	w.eventually("the quota named", func() error {
		c := meta.FindStatusCondition(w.memcached().Status.Conditions, cachev1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "exceeded quota: claims") {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	w.annotate(2, "")
	w.claimGone(2, left.UID)
	if c := w.claim(1); c == nil || c.UID != lost.UID || w.aside(lost) != nil {
		t.Errorf("the volume was set aside before: %s", asJSON(c))
	}
	w.delete(quota)
	w.volumeGone(lost)
	w.settled(2)
}

func TestScaleUpPastAFailedDrainSetsTheVolumeAside(t *testing.T) {
	tier.Second(t, "TestVolumeWhoseDrainWaitsForAPersonMakesWayForItsMember")
	w := newWorld(t)
	claim := w.failedDrain()
	w.scale(3)
	aside := func() *cachev1alpha1.DrainStatus {
		for _, d := range w.memcached().Status.Drains {
			if strings.HasPrefix(d.Claim, claim.Name+"-aside-") && d.Phase == cachev1alpha1.DrainFailed && d.Reason == "SourceCorrupt" {
				return &d
			}
		}
		return nil
	}
	w.eventually("three members, and the drain failed from the other claim", func() error {
		s := w.memcached().Status
		if s.ReadySize != 3 || aside() == nil || len(s.Drains) != 1 {
			return fmt.Errorf("%s", asJSON(s))
		}
		return nil
	})
	if c := w.claim(2); c.UID == claim.UID || c.Spec.VolumeName == claim.Spec.VolumeName {
		t.Errorf("the member is back on %s", asJSON(c))
	}
	kubes.Play(w.namespace, player.Succeed(7))
	w.annotateClaim(aside().Claim, cachev1alpha1.DrainRetry)
	w.volumeGone(claim)
	m := w.settled(3)
	equal(w, "result", m.Status.LastDrains[0].Result, "Drained")
}

func TestScaleUpPastAHeldDrainKeepsItHeld(t *testing.T) {
	tier.Second(t, "TestHeldDrainBeginsWhenTheAnnotationIsRemoved")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	claim := w.claim(2)
	w.annotate(2, cachev1alpha1.DrainHold)
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainHeld)
	w.scale(3)
	w.eventually("three members, and the drain held", func() error {
		if s := w.memcached().Status; s.ReadySize != 3 || w.aside(claim) == nil || w.claim(2) == nil || w.claim(2).UID == claim.UID {
			return fmt.Errorf("%s", asJSON(s))
		}
		return w.drainIs(2, cachev1alpha1.DrainHeld, cachev1alpha1.ReasonHeld)
	})
	equal(w, "drains", len(w.drains()), 0)
	w.annotateClaim(w.aside(claim).Name, cachev1alpha1.DrainSkip)
	w.volumeGone(claim)
	m := w.settled(3)
	equal(w, "result", m.Status.LastDrains[0].Result, "Skipped")
}

func TestClaimDeletedUnderARunningDrainerIsDrainedByIt(t *testing.T) {
	tier.Second(t, "TestAVolumeOutlivesItsClaimThatWasDeletedBeforeItsDrain")
	w := newWorld(t)
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	w.rests() // the operator has seen that its drainer runs
	w.delete(claim)
	w.always("the drain goes on", func() error {
		if w.jobOf(claim.UID) == nil || len(w.claims()) != 3 {
			return errors.New("it does not")
		}
		return nil
	})
	kubes.Play(w.namespace, player.Succeed(5))
	w.claimGone(2, claim.UID)
	m := w.settled(2)
	equal(w, "claim", m.Status.LastDrains[0].Claim, claim.Name)
}

func TestClaimDeletedUnderADrainerThatFailsIsDrainedFromAnother(t *testing.T) {
	tier.Second(t, "TestClaimDeletedBeforeItsDrainIsDrainedFromAnother")
	w := newWorld(t)
	claim := w.hangingDrain(apitest.MakeMemcached(name))
	w.delete(claim)
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		if d.SourceID == string(claim.UID) {
			return player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer")(d)
		}
		return player.Succeed(5)(d)
	})
	w.volumeGone(claim)
	m := w.settled(2)
	equal(w, "items", m.Status.LastDrains[0].Added, 5)
}

func TestClaimOfAVolumeSetAsideIsSetAsideInItsTurn(t *testing.T) {
	tier.Second(t, "TestVolumeWhoseDrainWaitsForAPersonMakesWayForItsMember")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
	claim := w.claim(1)
	w.delete(claim)
	w.delete(w.pod("cache-1"))
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	first := w.aside(claim)
	kubes.Play(w.namespace, player.Succeed(5))
	w.delete(first)
	w.volumeGone(claim)
	m := w.settled(2)
	equal(w, "items", m.Status.LastDrains[0].Added, 5)
}

func TestClusterDeletedWhenAVolumeIsHalfSetAsideLeavesNothingStuck(t *testing.T) {
	tier.Second(t, "TestDismantlingFinishesWhatIsHalfSetAside")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	claim := w.claim(2)
	w.delete(claim)
	w.dieAfter(func(write string) bool { return strings.HasPrefix(write, "patch persistentvolumes") })
	w.delete(w.pod("cache-2"))
	w.eventually("the operator dead", func() error {
		select {
		case <-w.running().Ended():
			return nil
		default:
			return errors.New("it lives")
		}
	})
	w.delete(w.memcached())
	w.restartOperator()
	w.nothingLeft()
	w.released(2)
	w.volumeGone(claim) // a person deleted the claim, and then the cluster
}

func TestOperatorOfOneNamespaceHoldsADeletedClaimAndSaysWhatAnAdministratorDoes(t *testing.T) {
	w := newNamespace(t)
	w.grantHere()
	w.startOperator()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, player.Succeed(5))
	claim := w.claim(2)
	w.stopOperator()
	w.delete(claim)
	w.scale(2)
	w.startOperator()
	w.eventually("the pod gone, and no pod on the claim", func() error {
		if c := w.claim(2); len(w.pods()) != 2 || c == nil || len(c.Finalizers) != 1 {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonClaimDeleted)
	said := regexp.MustCompile(`claim (\S+): .* administrator can reserve volume (\S+) for claim (\S+) \(docs/runbook.md, ClaimDeleted\)`).FindStringSubmatch(message)
	if said == nil || said[1] != claim.Name || said[2] != claim.Spec.VolumeName {
		t.Fatalf("the condition does not say what to do: %s", message)
	}
	w.always("the claim is held", func() error {
		if c := w.claim(2); c == nil || c.UID != claim.UID || len(w.jobs()) != 0 || len(w.claims()) != 3 {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	// The runbook's command.
	patch := fmt.Sprintf(`{"spec":{"claimRef":{"name":%q,"uid":null,"resourceVersion":null}}}`, said[3])
	volume := w.volumeOf(claim)
	if err := admin.Patch(t.Context(), volume, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	w.volumeGone(claim)
	m := w.settled(2)
	equal(w, "items", m.Status.LastDrains[0].Added, 5)
}

func TestScaleUpPastAFailedDrainIsBlockedWithoutRightsOnVolumes(t *testing.T) {
	tier.Second(t, "TestASizeThatAVolumeBlocksSaysWhichClaimWhyAndTheWayOut")
	w := newNamespace(t)
	w.grantHere()
	w.startOperator()
	claim := w.failedDrain()
	w.scale(3)
	message := w.condition(cachev1alpha1.ConditionProgressing, "False", cachev1alpha1.ReasonBlockedByVolume)
	if !strings.Contains(message, claim.Name) {
		t.Errorf("the condition does not name the claim: %s", message)
	}
	w.always("the member stays away", func() error { return errors.Join(w.replicasAre(2), w.claimIsKept(2)) })
	w.annotate(2, cachev1alpha1.DrainSkip)
	w.settled(3)
}
