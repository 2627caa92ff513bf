package integration

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// drainRuns waits until a drainer of the claim runs.
func (w *world) drainRuns(claim types.UID) {
	w.Helper()
	w.eventually("a drainer that runs", func() error {
		for _, p := range w.pods() {
			// A stranger's pod may be annotated as a drainer's; it has no Job.
			if p.Annotations[cachev1alpha1.AnnotationClaimUID] == string(claim) && metav1.GetControllerOf(&p) != nil && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("none")
	})
}

// hangingDrain scales from 3 to 2 with a drainer that runs until another script is set. hangingDrain returns
// the claim that the drainer drains.
func (w *world) hangingDrain(b *apitest.MemcachedBuilder) *corev1.PersistentVolumeClaim {
	w.Helper()
	w.storageCluster(b, 3)
	kubes.Play(w.namespace, player.Hang)
	claim := w.claim(2)
	w.scale(2)
	w.drainRuns(claim.UID)
	return claim
}

func TestSeveralLeaveHighestFirstAsManyAtOnceAsAllowed(t *testing.T) {
	tier.Second(t, "TestSeveralDrainHighestFirst")
	t.Parallel()
	for _, parallelism := range []int32{1, 2} {
		t.Run(fmt.Sprintf("parallelism %d", parallelism), func(t *testing.T) {
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name).Parallelism(parallelism), 4)
			var mu sync.Mutex
			var order []string
			release := map[string]bool{}
			kubes.Play(w.namespace, func(d player.Drainer) player.Act {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(order, d.Claim) {
					order = append(order, d.Claim)
				}
				if !release[d.Claim] {
					return player.Act{Wait: true}
				}
				return player.Succeed(10)(d)
			})
			w.leave(1)
			for i := range 3 {
				atWork := min(int(parallelism), 3-i)
				w.eventually("the drainers at work", func() error {
					mu.Lock()
					defer mu.Unlock()
					if len(order) != i+atWork {
						return fmt.Errorf("%v", order)
					}
					return nil
				})
				if n := len(w.jobs()); n > int(parallelism) {
					t.Errorf("%d Jobs at once: %v", n, order)
				}
				claim := w.claim(3 - i)
				mu.Lock()
				release[claim.Name] = true
				mu.Unlock()
				w.claimGone(3-i, claim.UID)
			}
			m := w.settled(1)
			slices.Sort(order[:parallelism]) // drains that begin together do so in any order
			want := []string{claimName(3), claimName(2), claimName(1)}
			slices.Sort(want[:parallelism])
			equal(w, "order", order, want)
			equal(w, "drains that ended", len(m.Status.LastDrains), 3)
		})
	}
}

// leave scales down, stops the operator at once, and starts another one when the pods are gone. So each volume
// can be drained at once.
func (w *world) leave(size int) {
	w.Helper()
	w.dieAfter(func(write string) bool { return write == "patch statefulsets cache" })
	w.scale(int32(size))
	w.eventually("the pods gone", func() error {
		if n := len(w.pods()); n != size {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	w.restartOperator()
}

func TestDrainersAreGivenOnlyMembersThatStay(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	var mu sync.Mutex
	var seen player.Drainer
	kubes.Play(w.namespace, func(d player.Drainer) player.Act {
		mu.Lock()
		defer mu.Unlock()
		seen = d
		return player.Succeed(1)(d)
	})
	claim := w.claim(2)
	w.scale(2)
	w.claimGone(2, claim.UID)
	mu.Lock()
	defer mu.Unlock()
	equal(w, "servers", seen.Servers, []string{
		fmt.Sprintf("cache-0.cache.%s.svc:11211", w.namespace), fmt.Sprintf("cache-1.cache.%s.svc:11211", w.namespace),
	})
	equal(w, "source", seen.SourceID, string(claim.UID))
	if !seen.ReadOnly {
		t.Error("the released volume is mounted for writing")
	}
}

func TestScaleUpDuringADrainWaitsAndTheMemberReturnsOnAFreshClaim(t *testing.T) {
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	w.scale(3)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
	w.always("the StatefulSet keeps its size", func() error { return w.replicasAre(2) })
	kubes.Play(w.namespace, player.Succeed(5))
	w.claimGone(2, left.UID)
	w.settled(3)
	if returned := w.claim(2); returned == nil || returned.UID == left.UID {
		t.Errorf("the member is back on the claim that it left")
	}
}

func TestSecondScaleDownWaitsForTheFirst(t *testing.T) {
	tier.Second(t, "TestNoMemberOfTheRingIsMarkedUntilItemsAreMoved")
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	w.scale(1)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
	w.always("the StatefulSet keeps its size", func() error { return w.replicasAre(2) })
	kubes.Play(w.namespace, player.Succeed(5))
	w.claimGone(2, left.UID)
	m := w.settled(1)
	equal(w, "drains that ended", len(m.Status.LastDrains), 2)
}

// replicasAre returns nil if the StatefulSet has that size.
func (w *world) replicasAre(n int32) error {
	if s := w.statefulSet(); s == nil || *s.Spec.Replicas != n {
		return fmt.Errorf("StatefulSet %s", asJSON(s))
	}
	return nil
}

func TestScaleUpBeforeTheJobBeginsDrainsAllTheSame(t *testing.T) {
	tier.Second(t, "TestScaleUpDuringADrainWaitsAndTheMemberReturnsOnAFreshClaim")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Linger(w.namespace, true)
	left := w.claim(2)
	w.scale(2)
	w.eventually("the drain waits for the pod", func() error {
		return w.drainIs(2, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonPodPresent)
	})
	w.scale(3)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
	kubes.Linger(w.namespace, false)
	w.claimGone(2, left.UID)
	m := w.settled(3)
	equal(w, "drains that ended", len(m.Status.LastDrains), 1)
}

func TestHibernateKeepsTheClaimsAndResumesOnThem(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	before := w.claims()
	w.scale(0)
	w.settled(0)
	w.eventually("phase Hibernated", func() error {
		if p := w.memcached().Status.Phase; p != cachev1alpha1.PhaseHibernated {
			return fmt.Errorf("%s", p)
		}
		return nil
	})
	w.scale(3)
	w.settled(3)
	equal(w, "claims", uids(w.claims()), uids(before))
	equal(w, "drains", len(w.memcached().Status.LastDrains), 0)
}

func TestResumeWithFewerDrainsTheThird(t *testing.T) {
	tier.Second(t, "TestHibernateKeepsTheClaimsAndResumesOnThem")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	before := w.claims()
	w.scale(0)
	w.settled(0)
	w.scale(2)
	w.claimGone(2, before[2].UID)
	m := w.settled(2)
	equal(w, "claims", uids(w.claims()), uids(before[:2]))
	equal(w, "drains", len(m.Status.LastDrains), 1)
}

func uids(claims []corev1.PersistentVolumeClaim) []types.UID {
	var out []types.UID
	for _, c := range claims {
		out = append(out, c.UID)
	}
	slices.Sort(out)
	return out
}

func TestPolicyRetainKeepsTheVolumeAndItsMemberReturns(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).Policy(cachev1alpha1.PolicyRetain), 3)
	left := w.claim(2)
	w.scale(2)
	w.eventually("the finalizer gone", func() error {
		if c := w.claim(2); c == nil || slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			return fmt.Errorf("%s", asJSON(c))
		}
		return nil
	})
	w.settled(2)
	equal(w, "Jobs", len(w.jobs()), 0)
	// The volume's values are old now: another claim keeps the volume, and the member starts empty.
	w.scale(3)
	w.settled(3)
	if c := w.claim(2); c == nil || c.UID == left.UID || c.Spec.VolumeName == left.Spec.VolumeName {
		t.Errorf("the member's claim: %s", asJSON(c))
	}
	kept := slices.DeleteFunc(w.claims(), func(c corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName != left.Spec.VolumeName })
	if len(kept) != 1 || kept[0].Status.Phase != corev1.ClaimBound || kept[0].DeletionTimestamp != nil ||
		slices.Contains(kept[0].Finalizers, cachev1alpha1.ClaimFinalizer) {
		t.Errorf("the volume is kept by %s", asJSON(kept))
	}
}

func TestPolicyDeleteGivesTheItemsUp(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).Policy(cachev1alpha1.PolicyDelete), 3)
	left := w.claim(2)
	w.scale(2)
	w.claimGone(2, left.UID)
	w.volumeGone(left)
	m := w.settled(2)
	equal(w, "result", m.Status.LastDrains[0].Result, "Deleted")
	for _, write := range w.journal.Writes() {
		if write.Resource == "jobs" {
			t.Errorf("a Job was made: %s", write)
		}
	}
}

// This is invariant 7.
func TestALostPodIsNotAScaleDown(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(*world){
		"a pod deleted": func(w *world) { w.delete(w.pod("cache-2")) },
		"a pod lost with its node": func(w *world) {
			w.delete(w.pod("cache-1"), client.GracePeriodSeconds(0))
		},
		"the StatefulSet deleted": func(w *world) { w.delete(w.statefulSet()) },
		"the StatefulSet deleted, its pods orphaned": func(w *world) {
			w.delete(w.statefulSet(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
		},
		"the StatefulSet scaled by hand": func(w *world) { w.change(w.statefulSet(), `{"spec":{"replicas":1}}`) },
	} {
		t.Run(what, func(t *testing.T) {
			if what != "a pod deleted" && what != "the StatefulSet deleted" && what != "the StatefulSet scaled by hand" {
				tier.Second(t, "TestALostPodIsNotAScaleDown")
			}
			w := newWorld(t)
			w.storageCluster(apitest.MakeMemcached(name), 3)
			claims, before := uids(w.claims()), len(w.journal.Writes())
			was := w.members()
			lose(w)
			w.eventually("an effect", func() error {
				if slices.Equal(was, w.members()) {
					return errors.New("none")
				}
				return nil
			})
			w.settled(3)
			w.quiet()
			equal(w, "claims", uids(w.claims()), claims)
			for _, write := range w.journal.Writes()[before:] {
				if write.Resource == "jobs" || write.Resource == "persistentvolumeclaims" {
					t.Errorf("a lost pod led to %s", write)
				}
			}
		})
	}
}

// members identifies the StatefulSet, with its generation, and its pods.
func (w *world) members() []string {
	var out []string
	for _, s := range w.statefulSets() {
		out = append(out, fmt.Sprintf("%s %d", s.UID, s.Generation))
	}
	for _, p := range w.pods() {
		out = append(out, string(p.UID))
	}
	slices.Sort(out)
	return out
}

func TestProgressOfARunningDrainReachesStatus(t *testing.T) {
	tier.Second(t, "TestStatusTellsTheWholeStoryOfAScaleDown")
	w := newNamespace(t)
	w.progress = fixedProgress(contract.Progress{
		Phase: contract.PhaseAdding, ItemsDone: 25, ItemsTotal: 100, BytesDone: 1 << 20, BytesTotal: 4 << 20, Message: "cache-1 is slow",
	})
	w.startOperator()
	w.hangingDrain(apitest.MakeMemcached(name))
	w.eventually("progress in status", func() error {
		if p := w.memcached().Status.Progress; p != "25% (25/100 items)" {
			return fmt.Errorf("%q", p)
		}
		return nil
	})
	d := w.memcached().Status.Drains[0]
	equal(w, "the drain", []any{d.Phase, d.ItemsDone, d.ItemsTotal, d.Message}, []any{cachev1alpha1.DrainAdding, int64(25), int64(100), "cache-1 is slow"})
	kubes.Play(w.namespace, player.Succeed(100))
	m := w.settled(2)
	equal(w, "progress at the end", m.Status.Progress, "")
}
