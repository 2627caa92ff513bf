package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// injectProxy makes the API server add a container before that of each drainer, as a
// mesh's webhook does.
func (w *world) injectProxy() {
	w.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	policy.Spec = admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		FailurePolicy:      ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		MatchConditions: []admissionv1.MatchCondition{{Name: "drainers", Expression: `object.spec.containers.exists(c, c.name == "drainer")`}},
		Mutations: []admissionv1.Mutation{{
			PatchType: admissionv1.PatchTypeJSONPatch,
			JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/containers/0", value: Object.spec.containers{name: "proxy", image: "proxy"}}]`},
		}},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	binding.Spec.PolicyName = policy.Name
	if err := errors.Join(admin.Create(w.Context(), policy), admin.Create(w.Context(), binding)); err != nil {
		w.Fatal(err)
	}
	w.eventually("the policy in force", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: w.namespace}}
		pod.Spec.Containers = []corev1.Container{{Name: "drainer", Image: "none"}}
		if err := admin.Create(w.Context(), pod, client.DryRunAll); err != nil || len(pod.Spec.Containers) != 2 {
			return fmt.Errorf("%d containers: %w", len(pod.Spec.Containers), err)
		}
		return nil
	})
}

func TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo(t *testing.T) {
	w := newWorld(t)
	w.injectProxy()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Succeed(12))
	claim := w.claim(1)
	w.scale(1)
	w.claimGone(1, claim.UID)
	m := w.settled(1)
	equal(w, "items", m.Status.LastDrains[0].Added, int64(12))
	equal(w, "Jobs at the end", len(w.jobs()), 0)
}

func TestADrainBesideASidecarOfItsPodTemplateLetsTheClaimGo(t *testing.T) {
	tier.Second(t, "TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo")
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name).With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Drain.PodTemplate.Containers = []corev1.Container{{Name: "shipper", Image: "shipper"}}
	}), 2)
	kubes.Play(w.namespace, player.Succeed(12))
	claim := w.claim(1)
	w.scale(1)
	w.claimGone(1, claim.UID)
	m := w.settled(1)
	equal(w, "items", m.Status.LastDrains[0].Added, int64(12))
	equal(w, "Jobs at the end", len(w.jobs()), 0)
}

func TestAMoveBesideASidecarThatNeverEndsIsRecorded(t *testing.T) {
	tier.Second(t, "TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo")
	w := newWorld(t)
	w.injectProxy()
	w.storageCluster(apitest.MakeMemcached(name), 1)
	kubes.Play(w.namespace, player.Succeed(3))
	w.scale(2)
	w.eventually("a move", func() error {
		if w.claim(0).Annotations[cachev1alpha1.AnnotationMoved] == "" {
			return errors.New("it is not recorded")
		}
		return nil
	})
	w.settled(2)
	equal(w, "Jobs at the end", len(w.jobs()), 0)
}

// The Job of such a drain has not ended, but its drainer has. So the Job blocks nothing.
func TestASizeChangesAfterADrainThatFailedBesideASidecar(t *testing.T) {
	tier.Second(t, "TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo")
	w := newWorld(t)
	w.injectProxy()
	w.storageCluster(apitest.MakeMemcached(name), 3)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnrecoverable, "SourceCorrupt", "page 3 is torn"))
	w.scale(2)
	w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	kubes.Play(w.namespace, player.Succeed(7))
	claim := w.claim(1)
	w.scale(1)
	w.claimGone(1, claim.UID)
	w.eventually("the result", func() error {
		if last := w.memcached().Status.LastDrains; len(last) == 0 || last[0].Result != "Drained" {
			return fmt.Errorf("the last drains are %s", asJSON(last))
		}
		return nil
	})
	w.scale(3)
	w.eventually("three members, and the volume that can't be read set aside", func() error { return w.replicasAre(3) })
}

func TestADrainThatFailedBesideASidecarIsTriedAgain(t *testing.T) {
	tier.Second(t, "TestADrainBesideASidecarThatNeverEndsLetsTheClaimGo")
	w := newWorld(t)
	w.injectProxy()
	w.storageCluster(apitest.MakeMemcached(name), 2)
	kubes.Play(w.namespace, player.Fail(contract.ExitUnreachable, "SurvivorUnreachable", "cache-0 did not answer"))
	claim := w.claim(1)
	w.scale(1)
	message := w.condition(cachev1alpha1.ConditionDegraded, "True", cachev1alpha1.ReasonDrainFailed)
	if !strings.Contains(message, "cache-0 did not answer") {
		t.Errorf("it says %q", message)
	}
	w.isTriedAgainInTime(claim.UID)
	kubes.Play(w.namespace, player.Succeed(7))
	w.claimGone(1, claim.UID)
	equal(w, "result", w.settled(1).Status.LastDrains[0].Result, "Drained")
}
