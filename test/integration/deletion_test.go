package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// released waits until the claims exist without the operator's finalizer.
func (w *world) released(n int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d claims, let go", n), func() error {
		claims := w.claims()
		if len(claims) != n {
			return fmt.Errorf("%d claims", len(claims))
		}
		for _, c := range claims {
			if slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) || c.DeletionTimestamp != nil {
				return fmt.Errorf("claim %s: finalizers %v, deleting %v", c.Name, c.Finalizers, c.DeletionTimestamp != nil)
			}
		}
		return nil
	})
}

func (w *world) noClaims() {
	w.Helper()
	w.eventually("no claims", func() error {
		if claims := w.claims(); len(claims) != 0 {
			return fmt.Errorf("%s", asJSON(claims))
		}
		return nil
	})
}

// phases are those in which a cluster, or its namespace, may be deleted.
func phases() map[string]func(w *world, b *apitest.MemcachedBuilder) {
	idle := func(w *world, b *apitest.MemcachedBuilder) { w.storageCluster(b, 3) }
	return map[string]func(w *world, b *apitest.MemcachedBuilder){
		"idle":                       idle,
		"in the middle of a drain":   func(w *world, b *apitest.MemcachedBuilder) { w.hangingDrain(b) },
		"while a member shuts down":  lingering,
		"after a drain failed":       bringFailure,
		"before the members are up":  bringBirth,
		"hibernated":                 func(w *world, b *apitest.MemcachedBuilder) { idle(w, b); w.scale(0); w.settled(0) },
		"with a claim deleted by us": func(w *world, b *apitest.MemcachedBuilder) { idle(w, b); w.delete(w.claim(1)) },
	}
}

func TestDeletionLeavesNothingStuck(t *testing.T) {
	t.Parallel()
	for what, bring := range phases() {
		for _, policy := range []cachev1alpha1.DeletionPolicy{cachev1alpha1.DeletionRetain, cachev1alpha1.DeletionDelete} {
			t.Run(fmt.Sprintf("%s, %s", what, policy), func(t *testing.T) {
				if what != "in the middle of a drain" && (what != "with a claim deleted by us" || policy == cachev1alpha1.DeletionDelete) {
					tier.Second(t, "TestDeletionLeavesNothingStuck")
				}
				w := newWorld(t)
				bring(w, apitest.MakeMemcached(name).WhenDeleted(policy))
				claims := len(w.claims())
				w.delete(w.memcached())
				kubes.Linger(w.namespace, false)
				w.nothingLeft()
				switch {
				case policy == cachev1alpha1.DeletionDelete:
					w.noClaims()
				case what == "with a claim deleted by us":
					w.released(claims - 1)
				case claims == 3:
					w.released(claims)
				}
			})
		}
	}
}

// bringBirth stops at the cluster's first finalizer.
func bringBirth(w *world, b *apitest.MemcachedBuilder) {
	w.create(b.Size(3).Storage("128Mi").Obj())
	w.eventually("the cluster's finalizer", func() error {
		if len(w.memcached().Finalizers) == 0 {
			return errors.New("none")
		}
		return nil
	})
}

func lingering(w *world, b *apitest.MemcachedBuilder) {
	w.storageCluster(b, 3)
	kubes.Linger(w.namespace, true)
	w.scale(2)
	w.eventually("the drain waits for the pod", func() error {
		return w.drainIs(2, cachev1alpha1.DrainWaiting, cachev1alpha1.ReasonPodPresent)
	})
}

func bringFailure(w *world, b *apitest.MemcachedBuilder) {
	w.storageCluster(b, 3)
	kubes.Play(w.namespace, player.Fail(3, "SourceCorrupt", "page 3 is torn"))
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
}

func TestClusterOfTheSameNameAdoptsRetainedClaims(t *testing.T) {
	tier.Second(t, "TestJourneyOfACluster")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	before := uids(w.claims())
	w.delete(w.memcached())
	w.nothingLeft()
	w.released(3)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	equal(w, "claims", uids(w.claims()), before)
	w.eventually("the claims held again", func() error {
		return errors.Join(w.claimIsKept(0), w.claimIsKept(1), w.claimIsKept(2))
	})
	equal(w, "Jobs", len(w.jobs()), 0)
}

func TestSmallerClusterOfTheSameNameDrainsTheRest(t *testing.T) {
	tier.Second(t, "TestClaimsThatAreThereBeforeTheirMembersAreDrainedAsAnyOther")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	third := w.claim(2)
	w.delete(w.memcached())
	w.nothingLeft()
	w.released(3)
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
	w.claimGone(2, third.UID)
	m := w.settled(2)
	equal(w, "result", m.Status.LastDrains[0].Result, "Drained")
}

func TestMemberOfARecreatedClusterNeverReturnsToAVolumeThatItLeft(t *testing.T) {
	tier.Second(t, "TestScaleUpDuringADrainWaitsAndTheMemberReturnsOnAFreshClaim")
	w := newWorld(t)
	left := w.hangingDrain(apitest.MakeMemcached(name))
	w.delete(w.memcached())
	w.nothingLeft()
	w.released(3)
	kubes.Play(w.namespace, player.Succeed(9))
	w.create(apitest.MakeMemcached(name).Size(3).Storage("128Mi").Obj())
	w.claimGone(2, left.UID)
	w.settled(3)
}

func TestNamespaceDeletedInEachPhaseGoes(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	t.Parallel()
	for what, bring := range phases() {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			bring(w, apitest.MakeMemcached(name))
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
			if err := admin.Delete(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
			kubes.Linger(w.namespace, false)
			w.eventually("the namespace gone", func() error {
				err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("%s %w", asJSON(namespace.Status), err)
			})
			w.stopOperator()
			if lines := w.log.errors(); lines != "" {
				t.Errorf("the log has errors:\n%s", lines)
			}
		})
	}
}

func TestClaimsAreLetGoWhenTheClustersFinalizerWasForcedOff(t *testing.T) {
	tier.Second(t, "TestDeletionLeavesNothingStuck")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.stopOperator()
	m := w.memcached()
	w.change(m, `{"metadata":{"finalizers":null}}`)
	w.delete(m)
	w.eventually("the Memcached gone", func() error {
		if w.memcached() != nil {
			return errors.New("it is there")
		}
		return nil
	})
	w.startOperator()
	w.nothingLeft()
	w.released(3)
}

func TestMembersThatAreOrphanedStayAndAreAdoptedAgain(t *testing.T) {
	tier.Second(t, "TestALostPodIsNotAScaleDown")
	t.Parallel()
	for what, bring := range map[string]func(w *world, b *apitest.MemcachedBuilder){
		"idle":                     func(w *world, b *apitest.MemcachedBuilder) { w.storageCluster(b, 3) },
		"in the middle of a drain": func(w *world, b *apitest.MemcachedBuilder) { w.hangingDrain(b) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			bring(w, apitest.MakeMemcached(name).WhenDeleted(cachev1alpha1.DeletionDelete))
			members, claims := w.statefulSet(), uids(w.claims())
			w.delete(w.memcached(), client.PropagationPolicy(metav1.DeletePropagationOrphan))
			w.eventually("the Memcached gone, and no Job", func() error {
				if w.memcached() != nil || len(w.jobs()) != 0 {
					return errors.New("they are there")
				}
				return nil
			})
			w.released(3)
			w.always("the members stay", func() error {
				if s := w.statefulSet(); s == nil || s.UID != members.UID || s.DeletionTimestamp != nil || len(w.pods()) < int(*members.Spec.Replicas) {
					return fmt.Errorf("%s", asJSON(s))
				}
				return nil
			})
			equal(w, "claims", uids(w.claims()), claims)
			kubes.Play(w.namespace, player.Succeed(9))
			w.create(apitest.MakeMemcached(name).Size(*members.Spec.Replicas).Storage("128Mi").Obj())
			w.settled(*members.Spec.Replicas)
			if s := w.statefulSet(); s.UID != members.UID || !metav1.IsControlledBy(s, w.memcached()) {
				t.Errorf("the members were not adopted: %s", asJSON(s.ObjectMeta))
			}
		})
	}
}
