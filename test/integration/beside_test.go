package integration

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/tier"
)

func (w *world) budget() *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{}
	return found(w, b, admin.Get(w.Context(), w.key(name), b))
}

func (w *world) networkPolicy() *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{}
	return found(w, p, admin.Get(w.Context(), w.key(name), p))
}

// evict evicts a member, as kubectl drain does.
func (w *world) evict(pod string) error {
	p := w.pod(pod)
	if p == nil {
		return fmt.Errorf("pod %s is not there", pod)
	}
	return admin.SubResource("eviction").Create(w.Context(), p, &policyv1.Eviction{})
}

func TestEvictionsTakeOneMemberAtATime(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	w.eventually("a budget that allows one", func() error {
		if b := w.budget(); b == nil || b.Status.DisruptionsAllowed != 1 || b.Status.ObservedGeneration != b.Generation {
			return fmt.Errorf("%s", asJSON(b))
		}
		return nil
	})
	kubes.Unready(w.namespace, true) // a member that is evicted isn't ready again soon
	if err := w.evict("cache-0"); err != nil {
		t.Fatalf("the first: %v", err)
	}
	if err := w.evict("cache-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the second: want a refusal, got %v", err)
	}
	kubes.Unready(w.namespace, false)
	w.settled(3)
}

func TestBudgetComesAndGoesWithTheMembers(t *testing.T) {
	tier.Second(t, "TestRoutersHaveABudgetUnlessItIsRefused")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 1)
	budget := func(want bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("a budget: %v", want), func() error {
			if is := w.budget() != nil; is != want {
				return fmt.Errorf("%v", is)
			}
			return nil
		})
	}
	equal(w, "a budget for one", w.budget() != nil, false)
	w.scale(2)
	budget(true)
	w.change(w.budget(), `{"spec":{"maxUnavailable":2}}`)
	w.eventually("one again", func() error {
		if n := w.budget().Spec.MaxUnavailable.IntValue(); n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	w.change(w.memcached(), `{"spec":{"podDisruptionBudget":{"maxUnavailable":"50%"}}}`)
	w.eventually("a half", func() error {
		if s := w.budget().Spec.MaxUnavailable.String(); s != "50%" {
			return errors.New(s)
		}
		return nil
	})
	w.settled(2)
	w.scale(1)
	budget(false)
	w.settled(1)
	w.change(w.memcached(), `{"spec":{"size":3,"podDisruptionBudget":{"enabled":false}}}`)
	w.settled(3)
	equal(w, "a budget that the spec doesn't want", w.budget() != nil, false)
}

// anothersBudget is another owner's, with the name that the cluster's would have.
func (w *world) anothersBudget() *policyv1.PodDisruptionBudget {
	w.Helper()
	foreign := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "another"}},
	}}
	foreign.Name = name
	w.create(foreign)
	return foreign
}

func TestBudgetOfAnotherOwnerHoldsUpNoMember(t *testing.T) {
	tier.Second(t, "TestForeignObjectOfTheSameNameIsLeftAlone")
	w := newWorld(t)
	foreign := w.anothersBudget()
	w.storageClusterUnsettled(3)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	w.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	equal(w, "its selector", w.budget().Spec.Selector.MatchLabels, map[string]string{"app": "another"})
	w.delete(foreign)
	w.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
}

// storageClusterUnsettled creates a cluster with storage.
func (w *world) storageClusterUnsettled(size int32) {
	w.Helper()
	w.create(apitest.MakeMemcached(name).Size(size).Storage("128Mi").Obj())
}

func TestNetworkPolicyComesAndGoesOnRequest(t *testing.T) {
	w := newWorld(t)
	w.create(sample())
	w.settled(3)
	if w.networkPolicy() != nil {
		t.Error("there is a budget that the spec doesn't want")
	}
	foreign := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "another"}}}}
	foreign.Name = name
	w.create(foreign)
	w.change(w.memcached(), `{"spec":{"networkPolicy":{"clients":[{"podSelector":{"matchLabels":{"app":"web"}}}]}}}`)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonNameTaken)
	equal(w, "its selector", w.networkPolicy().Spec.PodSelector.MatchLabels, map[string]string{"app": "another"})
	w.delete(foreign)
	w.eventually("a NetworkPolicy for the members", func() error {
		p := w.networkPolicy()
		if p == nil {
			return errors.New("none")
		}
		if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 3 || p.Spec.PodSelector.MatchLabels[cachev1alpha1.LabelInstance] != name {
			return fmt.Errorf("%s", asJSON(p.Spec))
		}
		return nil
	})
	w.change(w.networkPolicy(), `{"spec":{"ingress":[{}]}}`)
	w.eventually("closed again", func() error {
		if rule := w.networkPolicy().Spec.Ingress[0]; len(rule.From) != 3 {
			return fmt.Errorf("%s", asJSON(rule))
		}
		return nil
	})
	w.change(w.memcached(), `{"spec":{"networkPolicy":null}}`)
	w.eventually("none", func() error {
		if w.networkPolicy() != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// The pods are those of members, with metrics, and of drainers, with and without storage.
func TestPodsPassRestrictedPodSecurity(t *testing.T) {
	tier.Second(t, "TestAClusterFitsIntoANamespaceThatDemandsLimitsAndRestrictedPods")
	w := newNamespace(t)
	w.change(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}},
		`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	lax := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "any", Image: "any"}}}}
	lax.Namespace, lax.Name = w.namespace, "lax"
	if err := admin.Create(t.Context(), lax); !apierrors.IsForbidden(err) {
		t.Fatalf("the namespace enforces nothing: %v", err)
	}
	w.startOperator()
	measured := func(s *cachev1alpha1.MemcachedSpec) { s.Metrics = &cachev1alpha1.MetricsSpec{} }
	w.storageCluster(apitest.MakeMemcached(name).With(measured), 2)
	left := w.claim(1)
	w.scale(1)
	w.claimGone(1, left.UID)
	w.settled(1)
	w.delete(w.memcached())
	w.nothingLeft()
	w.create(apitest.MakeMemcached(name).With(measured).Obj())
	w.settled(3)
}
