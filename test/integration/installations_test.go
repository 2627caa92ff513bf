package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/tier"
)

// another starts another installation of the operator, of version b, which watches the same namespace.
func (w *world) another(clock clock.PassiveClock) (*operator.Operator, *operator.Journal) {
	w.Helper()
	return w.anotherThat(clock, nil)
}

// anotherThat is another, with faults of its writes.
func (w *world) anotherThat(clock clock.PassiveClock, fault func(int, operator.Write) operator.Fault) (*operator.Operator, *operator.Journal) {
	w.Helper()
	journal := &operator.Journal{}
	journal.Inject(fault)
	o, err := operator.Start(operator.Options{
		Config: asUser(w.user), Namespaces: []string{w.namespace}, Journal: journal, Rings: w.ringReader(), Images: version("b"),
		Installation: "tenant/memcached-operator", Log: w.log.logger(), Clock: clock,
	})
	if err != nil {
		w.Fatalf("start another operator: %v", err)
	}
	w.Cleanup(func() {
		if err := o.Stop(); err != nil {
			w.Errorf("the other operator ended with: %v", err)
		}
	})
	return o, journal
}

// A cluster-wide installation and one for a namespace have two versions. Each would replace the other one's
// members.
func TestTwoInstallationsOverOneNamespaceReplaceNoMembersByTurns(t *testing.T) {
	for what, m := range map[string]*apitest.MemcachedBuilder{
		"with storage": apitest.MakeMemcached(name).Storage("128Mi"), "without storage": apitest.MakeMemcached(name),
	} {
		t.Run(what, func(t *testing.T) {
			w := newNamespace(t)
			w.images = version("a")
			w.startOperator()
			w.create(m.Size(2).Obj())
			w.settled(2)
			held := testingclock.NewFakePassiveClock(time.Now())
			other, journal := w.another(held)
			w.eventually("status names the other one", func() error {
				if !w.has("a") {
					template, _ := w.template()
					w.Fatalf("the members are replaced by the other operator: %s", template.Spec.Containers[0].Image)
				}
				return w.degradedBy("tenant/memcached-operator")
			})
			// The first installation answers each time that the other one asks.
			for range 4 {
				before := w.memcached().Annotations[cachev1alpha1.AnnotationOtherOperator]
				// The answer counts from when the other one has seen it.
				w.eventually("the other one has seen the answer", func() error {
					seen := &cachev1alpha1.Memcached{}
					err := other.Reconciler.Get(w.Context(), w.key(name), seen)
					if is := seen.Annotations[cachev1alpha1.AnnotationOtherOperator]; is != before || !strings.Contains(is, `"answered":true`) {
						before = w.memcached().Annotations[cachev1alpha1.AnnotationOtherOperator]
						return fmt.Errorf("it sees %s: %w", is, err)
					}
					_, err = other.Reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
					return err
				})
				held.SetTime(held.Now().Add(10 * time.Minute))
				w.eventually("the other one asks again, and is answered", func() error {
					_, err := other.Reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
					now := w.memcached().Annotations[cachev1alpha1.AnnotationOtherOperator]
					if now == before || !strings.Contains(now, `"answered":true`) {
						return fmt.Errorf("it is %s: %w", now, err)
					}
					return nil
				})
			}
			if !w.has("a") {
				t.Error("the members were replaced")
			}
			for _, write := range journal.Writes() {
				if write.Resource != "memcacheds" {
					t.Errorf("the other one wrote %s", write)
				}
			}

			// The first installation is uninstalled.
			w.stopOperator()
			w.eventually("the other one takes over", func() error {
				held.SetTime(held.Now().Add(time.Minute))
				_, err := other.Reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)})
				if !w.has("b") {
					return fmt.Errorf("the members are not its own: %w", err)
				}
				return nil
			})
			w.settled(2)
			if a := w.memcached().Annotations; a[cachev1alpha1.AnnotationOperator] != "tenant/memcached-operator" || a[cachev1alpha1.AnnotationOtherOperator] != "" {
				t.Errorf("annotations %v", a)
			}
		})
	}
}

// A cluster-wide installation and one for a namespace drain a StatefulSet's member once, and the one that is left goes on.
func TestTwoInstallationsOverOneNamespaceDrainAStatefulSetOnce(t *testing.T) {
	tier.Second(t, "TestTwoInstallationsOverOneNamespaceReplaceNoMembersByTurns")
	w := queueWorld(t)
	held := testingclock.NewFakePassiveClock(time.Now())
	other, journal := w.another(held)
	job := w.draining(2, 2)
	w.eventually("status names the other one", func() error { return w.stsDrainCondition("Degraded", "True", cachev1alpha1.ReasonOtherOperator) })
	for _, write := range journal.Writes() {
		if write.Resource != "statefulsetdrains" {
			t.Errorf("the other one wrote %s", write)
		}
	}

	w.stopOperator()
	w.eventually("the other one takes over", func() error {
		held.SetTime(held.Now().Add(time.Minute))
		_, err := other.Drains.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(queue)})
		if by := w.stsDrain().Annotations[cachev1alpha1.AnnotationOperator]; by != "tenant/memcached-operator" {
			return fmt.Errorf("%s manages it: %w", by, err)
		}
		return nil
	})
	if again, err := w.runningDrain(2, "2"); err != nil || again.UID != job.UID {
		t.Errorf("another Job drains the member: %v", err)
	}
	kubes.Play(w.namespace, allMoved)
	w.wantClaims("it ends that drain", "data-queue-0", "data-queue-1")
}

// degradedBy returns nil if status says that another installation is at work here.
func (w *world) degradedBy(other string) error {
	for _, c := range w.memcached().Status.Conditions {
		if c.Type == cachev1alpha1.ConditionDegraded && c.Reason == cachev1alpha1.ReasonOtherOperator && strings.Contains(c.Message, other) {
			return nil
		}
	}
	return fmt.Errorf("conditions %s", asJSON(w.memcached().Status.Conditions))
}
