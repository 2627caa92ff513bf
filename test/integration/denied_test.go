package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/player"
	"example.com/memcached-operator/test/tier"
)

// A webhook chooses the code of its denial; many choose none. For each code of the API server, only the drain
// whose Job is denied waits.
func TestADrainWhoseJobAWebhookDeniesHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.storageCluster(apitest.MakeMemcached(name), 3)
	first, second := w.claim(2), w.claim(1)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Verb == "create" && write.Resource == "jobs" && strings.Contains(write.Body, string(first.UID)) {
			return operator.Denied
		}
		return operator.NoFault
	})
	w.scale(2)
	w.eventually("the drain is refused", func() error {
		return w.drainIs(2, cachev1alpha1.DrainFailed, cachev1alpha1.ReasonRefused)
	})
	w.scale(1)
	w.claimGone(1, second.UID)
	w.journal.Inject(nil)
	w.restartOperator() // otherwise the Job is tried again after fifteen seconds
	w.claimGone(2, first.UID)
	w.settled(1)
}

// sizeBecomes waits until the StatefulSet or the Deployment of the members has that many replicas.
func (w *world) sizeBecomes(n int32) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d members", n), func() error {
		is := int32(-1)
		if s := w.statefulSet(); s != nil {
			is = *s.Spec.Replicas
		} else if d := w.deployment(); d != nil {
			is = *d.Spec.Replicas
		}
		if is != n {
			return fmt.Errorf("%d", is)
		}
		return nil
	})
}

// An object of the cluster whose change the API server denies stays unchanged. The size changes.
func TestASettingThatIsDeniedHoldsUpNoSize(t *testing.T) {
	t.Parallel()
	stored := func() *apitest.MemcachedBuilder { return apitest.MakeMemcached(name).Size(2).Storage("128Mi") }
	closed := func(s *cachev1alpha1.MemcachedSpec) { s.NetworkPolicy = &cachev1alpha1.NetworkPolicySpec{} }
	both := []int32{3, 1}
	for what, test := range map[string]struct {
		cluster     *apitest.MemcachedBuilder
		spec, fixed string
		sizes       []int32
	}{
		"the members' template":        {stored(), `"podTemplate":{"nodeSelector":{"not a label":"x"}}`, `"podTemplate":null`, both},
		"labels of the members":        {stored(), `"podTemplate":{"labels":{"not a label":"x"}}`, `"podTemplate":null`, both},
		"the template without storage": {apitest.MakeMemcached(name).Size(2), `"podTemplate":{"nodeSelector":{"not a label":"x"}}`, `"podTemplate":null`, both},
		"labels of the Services":       {stored(), `"service":{"labels":{"not a label":"x"}}`, `"service":null`, both},
		"the Service without storage":  {apitest.MakeMemcached(name).Size(2), `"service":{"labels":{"not a label":"x"}}`, `"service":null`, both},
		"who may reach the members":    {stored().With(closed), `"networkPolicy":{"clients":[{"ipBlock":{"cidr":"10.0.0.0/33"}}]}`, `"networkPolicy":{"clients":null}`, both},
		// A member that joins would need a Service that the API server denies.
		"the Services of the members": {stored().With(func(s *cachev1alpha1.MemcachedSpec) { s.Routing.Addresses = cachev1alpha1.AddressesStable }), `"service":{"annotations":{"not a key":"x"}}`, `"service":null`, []int32{1}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.create(test.cluster.Obj())
			w.settled(2)
			w.change(w.memcached(), `{"spec":{`+test.spec+`}}`)
			w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonInvalidSpec)
			for _, n := range test.sizes {
				w.scale(n)
				w.sizeBecomes(n)
				w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonInvalidSpec)
			}
			w.change(w.memcached(), `{"spec":{`+test.fixed+`}}`)
			w.settled(1)
			w.condition(cachev1alpha1.ConditionReady, metav1.ConditionTrue, cachev1alpha1.ReasonAsWanted)
			w.rests()
		})
	}
}

func TestATemplateOfRoutersThatIsDeniedHoldsUpNoNumber(t *testing.T) {
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(1).Storage("128Mi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Router = &cachev1alpha1.RouterSpec{Replicas: ptr.To[int32](1)}
	}).Obj())
	w.settled(1)
	w.allRoutedTo(1, 1)
	w.change(w.memcached(), `{"spec":{"router":{"replicas":2,"podTemplate":{"labels":{"not a label":"x"}}}}}`)
	w.allRoutedTo(2, 1)
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonInvalidSpec)
	w.change(w.memcached(), `{"spec":{"router":{"podTemplate":null}}}`)
	w.settled(1)
	w.rests()
}

// The Secret of spec.binding can't be written. Everything else goes on, and Bindable says why.
func TestABindingThatIsDeniedHoldsUpNothing(t *testing.T) {
	w := newNamespace(t)
	w.grantHere()
	w.grantBinding()
	w.startOperator()
	w.create(apitest.MakeMemcached(name).Size(1).Storage("128Mi").With(func(s *cachev1alpha1.MemcachedSpec) {
		s.Binding = &cachev1alpha1.BindingSpec{SecretName: bindingName}
	}).Obj())
	w.settled(1)
	w.bindingHas(map[string]string{"type": "memcached"})
	w.change(w.binding(), `{"immutable":true}`)
	w.scale(2)
	message := w.condition(cachev1alpha1.ConditionBindable, metav1.ConditionFalse, cachev1alpha1.ReasonBindingForbidden)
	if !strings.Contains(message, "immutable") || strings.Contains(message, "Role") {
		t.Errorf("the condition says: %s", message)
	}
	w.settled(2)
	w.delete(w.binding())
	w.restartOperator() // otherwise the operator tries again after ten seconds
	w.noCondition(cachev1alpha1.ConditionBindable)
	w.bindingHas(map[string]string{"servers": strings.Join(w.ring(2), "\n") + "\n"})
}

// A policy denies an object of the cluster its label, which the operator's cache needs to see it. Status says so,
// everything else goes on, and when the policy is gone, the label is put back.
func TestALabelThatIsDeniedHoldsUpNothingElse(t *testing.T) {
	unlabel := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, cachev1alpha1.LabelCluster)
	denies := func(w *world, resource, object string) {
		w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
			if write.Verb == "patch" && write.Resource == resource && write.Name == object && strings.Contains(write.Body, cachev1alpha1.LabelCluster) {
				return operator.Denied
			}
			return operator.NoFault
		})
	}
	degraded := func(w *world, object string) {
		message := w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonReconcileError)
		if !strings.Contains(message, object) {
			w.Errorf("status does not name %s: %s", object, message)
		}
	}
	allowed := func(w *world, size int32) {
		w.journal.Inject(nil)
		w.restartOperator() // otherwise it waits longer and longer
		w.settled(size)
		w.condition(cachev1alpha1.ConditionReady, metav1.ConditionTrue, cachev1alpha1.ReasonAsWanted)
	}
	t.Run("a claim that was there before its member", func(t *testing.T) {
		w := newWorld(t)
		w.create(bareClaim(claimName(1)))
		denies(w, "persistentvolumeclaims", claimName(1))
		w.create(apitest.MakeMemcached(name).Size(3).Storage("128Mi").Obj())
		w.eventually("three members", func() error {
			if is := w.memcached().Status.ReadySize; is != 3 {
				return fmt.Errorf("%d", is)
			}
			return nil
		})
		degraded(w, claimName(1))
		left := w.claim(2)
		w.scale(2)
		w.claimGone(2, left.UID)
		allowed(w, 2)
		equal(w, "the claim has the label", w.claim(1).Labels[cachev1alpha1.LabelCluster], name)
	})
	t.Run("a member's claim", func(t *testing.T) {
		w := newWorld(t)
		w.storageCluster(apitest.MakeMemcached(name), 3)
		denies(w, "persistentvolumeclaims", claimName(0))
		left := w.claim(2)
		w.change(w.claim(0), unlabel)
		degraded(w, claimName(0))
		w.scale(2)
		w.claimGone(2, left.UID)
		allowed(w, 2)
		equal(w, "the claim has the label", w.claim(0).Labels[cachev1alpha1.LabelCluster], name)
	})
	t.Run("the Job of a drain", func(t *testing.T) {
		w := newWorld(t)
		left := w.hangingDrain(apitest.MakeMemcached(name))
		job := w.jobOf(left.UID)
		denies(w, "jobs", job.Name)
		w.change(job, unlabel)
		degraded(w, job.Name)
		kubes.Play(w.namespace, player.Succeed(7))
		w.claimGone(2, left.UID)
		allowed(w, 2)
	})
}

// A policy denies the patch by which supervisors are told of the list. Supervisors that were told of none name no member
// to clients, so the size changes.
func TestAListThatSupervisorsCannotBeToldHoldsUpNoSize(t *testing.T) {
	tier.Second(t, "TestASettingThatIsDeniedHoldsUpNoSize")
	w := newWorld(t)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Verb == "patch" && write.Resource == "pods" {
			return operator.Denied
		}
		return operator.NoFault
	})
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").With(discovers).Obj())
	for _, n := range []int32{2, 3, 1} {
		w.scale(n)
		w.sizeBecomes(n)
	}
	if message := w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonReconcileError); !strings.Contains(message, "of the list") {
		t.Errorf("status says: %s", message)
	}
	w.journal.Inject(nil)
	w.restartOperator() // otherwise it waits longer and longer
	w.settled(1)
	w.condition(cachev1alpha1.ConditionReady, metav1.ConditionTrue, cachev1alpha1.ReasonAsWanted)
	w.rests()
}

// The API server denies the annotation that names the installation of the operator. Status and an event say so, and
// nothing is made, because another installation may manage the object.
func TestAnObjectThatCannotBeGivenItsInstallationSaysSo(t *testing.T) {
	w := newWorld(t)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Verb == "patch" && strings.Contains(write.Body, cachev1alpha1.AnnotationOperator) {
			return operator.Denied
		}
		return operator.NoFault
	})
	w.create(apitest.MakeMemcached(name).Size(2).Obj())
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonReconcileError)
	w.warned("names its installation")
	if w.deployment() != nil {
		t.Error("members were made")
	}
	w.journal.Inject(nil)
	w.restartOperator() // otherwise it waits longer and longer
	w.settled(2)
	w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
}

// warned waits for a Warning event with this text.
func (w *world) warned(text string) {
	w.Helper()
	w.eventually("an event that says: "+text, func() error {
		for _, e := range w.events() {
			if e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, text) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// The API server denies each status. Then events alone can say so. Everything else goes on.
func TestAStatusThatIsDeniedIsToldByAnEvent(t *testing.T) {
	tier.Second(t, "TestAnObjectThatCannotBeGivenItsInstallationSaysSo")
	w := newWorld(t)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Resource == "memcacheds/status" {
			return operator.Denied
		}
		return operator.NoFault
	})
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
	w.warned("the status can't be written")
	w.sizeBecomes(2)
	w.journal.Inject(nil)
	w.restartOperator() // otherwise it waits longer and longer
	w.settled(2)
}

// Another installation has asked who manages the Memcached, and the API server denies the answer. This installation
// goes on, because the Memcached has its name.
func TestAnAnswerThatIsDeniedStopsNothing(t *testing.T) {
	tier.Second(t, "TestAnObjectThatCannotBeGivenItsInstallationSaysSo")
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
	w.settled(2)
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		if write.Verb == "patch" && write.Resource == "memcacheds" && strings.Contains(write.Body, cachev1alpha1.AnnotationOtherOperator) {
			return operator.Denied
		}
		return operator.NoFault
	})
	w.change(w.memcached(), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cachev1alpha1.AnnotationOtherOperator, `{"by":"tenant/other","number":1}`))
	w.warned("names its installation")
	w.scale(1)
	w.sizeBecomes(1)
}

// The API server denies the question whether another installation is at work. Status says so while that one is not at
// work, and only then.
func TestAQuestionThatIsDeniedShowsInStatus(t *testing.T) {
	tier.Second(t, "TestAnObjectThatCannotBeGivenItsInstallationSaysSo")
	w := newWorld(t)
	w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
	w.create(queueSet())
	w.create(queueDrain(queue))
	w.settled(2)
	w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
	w.stopOperator()
	other, journal := w.anotherThat(clock.RealClock{}, func(_ int, write operator.Write) operator.Fault {
		if write.Verb == "patch" && strings.Contains(write.Body, cachev1alpha1.AnnotationOtherOperator) {
			return operator.Denied
		}
		return operator.NoFault
	})
	const says = "can't be asked whether it is at work"
	if message := w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonReconcileError); !strings.Contains(message, says) {
		t.Errorf("status says %q", message)
	}
	w.stsDrainSays(cachev1alpha1.ConditionDegraded, metav1.ConditionTrue, cachev1alpha1.ReasonReconcileError, says)
	w.startOperator()
	atWork := func() {
		w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
		w.stsDrainSays(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
	}
	atWork()
	for range 3 { // the other one has seen that
		_, _ = other.Reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
		_, _ = other.Drains.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(queue)})
		w.rests()
		atWork()
	}
	said := map[string]int{}
	for _, write := range journal.Writes() {
		if write.Status/100 == 2 {
			said[write.Resource]++
		}
	}
	equal(w, "what the other one has written", said, map[string]int{"memcacheds/status": 1, "statefulsetdrains/status": 1})
}

// A policy removes the operator's marks from claims. The API server answers that all is well, and no event
// comes. Status names the missing marks, and the operator doesn't write them again and again.
func TestAWriteThatAdmissionUndoesIsNamed(t *testing.T) {
	tier.Second(t, "TestALabelThatIsDeniedHoldsUpNothingElse")
	const receipt, finalizer = cachev1alpha1.AnnotationReceipt, cachev1alpha1.ClaimFinalizer
	for what, test := range map[string]struct {
		patches string
		// departs: two members leave before it shows.
		departs bool
	}{
		"finalizer " + finalizer: {patches: fmt.Sprintf(`has(object.metadata.finalizers) && %[1]q in object.metadata.finalizers ?
			[JSONPatch{op: "replace", path: "/metadata/finalizers", value: object.metadata.finalizers.filter(f, f != %[1]q)}] : []`, finalizer)},
		"annotation " + receipt: {patches: fmt.Sprintf(`has(object.metadata.annotations) && %[1]q in object.metadata.annotations ?
			[JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(%[1]q)}] : []`, receipt), departs: true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newNamespace(t)
			allow := mutates(t, w.namespace, "/v1", []any{"persistentvolumeclaims"}, test.patches)
			w.eventually("the policy is in force", func() error {
				probe := bareClaim("probe")
				probe.Namespace, probe.Finalizers, probe.Annotations = w.namespace, []string{finalizer}, map[string]string{receipt: "{}"}
				if err := admin.Create(w.Context(), probe, client.DryRunAll); err != nil {
					return err
				}
				if slices.Contains(probe.Finalizers, finalizer) && probe.Annotations[receipt] != "" {
					return errors.New("it changes nothing")
				}
				return nil
			})
			kubes.Play(w.namespace, func(d player.Drainer) player.Act {
				if strings.Contains(d.Claim, queue) {
					return allMoved(d)
				}
				return player.Succeed(7)(d)
			})
			w.startOperator()
			w.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").Obj())
			w.create(queueSet())
			w.create(queueDrain(queue))
			if test.departs {
				w.settled(2)
				w.eventually("all members are ready and protected", func() error { return w.stsDrainIs("True", "Ready") })
				w.scale(1)
				w.scaleQueue(2)
			}
			w.eventually("both say so", func() error {
				for _, conditions := range [][]metav1.Condition{w.memcached().Status.Conditions, w.stsDrain().Status.Conditions} {
					c := meta.FindStatusCondition(conditions, cachev1alpha1.ConditionDegraded)
					if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "has undone") || !strings.Contains(c.Message, what) {
						return fmt.Errorf("conditions %s", asJSON(conditions))
					}
				}
				return nil
			})
			w.rests()
			allow()
			w.restartOperator() // otherwise it tries again after fifteen seconds
			left := map[bool]int32{false: 2, true: 1}[test.departs]
			w.settled(left)
			w.condition(cachev1alpha1.ConditionDegraded, metav1.ConditionFalse, cachev1alpha1.ReasonHealthy)
			w.eventually("all are protected", func() error { return w.stsDrainIs("True", "Ready") })
		})
	}
}
