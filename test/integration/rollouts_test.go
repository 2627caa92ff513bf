package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/tier"
)

// version returns the images of a version of the operator.
func version(tag string) operator.Images {
	return operator.Images{Memcached: "memcached:" + tag, Operator: "memcached-operator:" + tag}
}

// upgrade replaces the operator by one of another version.
func (w *world) upgrade(tag string) {
	w.Helper()
	w.stopOperator()
	w.images = version(tag)
	w.startOperator()
}

// template returns the members' template, and the annotations of its object.
func (w *world) template() (*corev1.PodTemplateSpec, map[string]string) {
	var sets appsv1.StatefulSetList
	w.list(&sets)
	if len(sets.Items) == 1 {
		return &sets.Items[0].Spec.Template, sets.Items[0].Annotations
	}
	var deployments appsv1.DeploymentList
	w.list(&deployments)
	if len(deployments.Items) == 1 {
		return &deployments.Items[0].Spec.Template, deployments.Items[0].Annotations
	}
	return &corev1.PodTemplateSpec{}, nil
}

// has tells whether the members' template is of that version.
func (w *world) has(tag string) bool {
	template, _ := w.template()
	return len(template.Spec.Containers) > 0 && strings.HasSuffix(template.Spec.Containers[0].Image, ":"+tag)
}

// rollsOut tells whether an upgrade is replacing the members.
func (w *world) rollsOut() bool {
	_, annotations := w.template()
	return strings.Contains(annotations[cachev1alpha1.AnnotationTemplate], `"rollout"`)
}

// waits tells whether status says that the members wait for their turn.
func (w *world) waits() bool {
	m := w.memcached()
	c := meta.FindStatusCondition(m.Status.Conditions, cachev1alpha1.ConditionProgressing)
	return c != nil && c.Reason == cachev1alpha1.ReasonWaitingForTurn
}

// all returns the worlds for which the condition holds.
func all(worlds []*world, condition func(*world) bool) []*world {
	var found []*world
	for _, w := range worlds {
		if condition(w) {
			found = append(found, w)
		}
	}
	return found
}

// newFleet makes clusters of two members, each in a world of its own, and an operator of version A that watches
// them all. The last ones have no storage.
func newFleet(t *testing.T, rollouts, clusters, plain int) (*world, []*world) {
	t.Helper()
	w := newNamespace(t)
	w.rollouts, w.images = rollouts, version("a")
	worlds := append([]*world{w}, w.neighbours(clusters-1)...)
	w.startOperator()
	for i, c := range worlds {
		b := apitest.MakeMemcached(name).Size(2)
		if i < clusters-plain {
			b.Storage("128Mi")
		}
		c.create(b.Obj())
	}
	for _, c := range worlds {
		c.settled(2)
	}
	return w, worlds
}

func unready(worlds []*world, on bool) {
	for _, w := range worlds {
		kubes.Unready(w.namespace, on)
	}
}

// soManyWait waits until so many clusters wait for their turn.
func (w *world) soManyWait(worlds []*world, want int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d wait for their turn", want), func() error {
		if n := len(all(worlds, (*world).waits)); n != want {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
}

// noMoreThan returns an error if an upgrade rolls out more clusters than it may. No list has both kinds, and
// between two lists one roll-out may end and another begin. So a StatefulSet counts if it is marked before and
// after the Deployments are listed.
func noMoreThan(limit int, worlds []*world) error {
	var before, after appsv1.StatefulSetList
	var plain appsv1.DeploymentList
	for _, l := range []client.ObjectList{&before, &plain, &after} {
		if err := admin.List(context.Background(), l); err != nil {
			return err
		}
	}
	marked, rolled := map[string]bool{}, map[string]bool{}
	for i := range before.Items {
		marked[before.Items[i].Namespace] = isRolledOut(&before.Items[i])
	}
	for i := range after.Items {
		namespace := after.Items[i].Namespace
		rolled[namespace] = marked[namespace] && isRolledOut(&after.Items[i])
	}
	for i := range plain.Items {
		rolled[plain.Items[i].Namespace] = rolled[plain.Items[i].Namespace] || isRolledOut(&plain.Items[i])
	}
	if n := len(all(worlds, func(w *world) bool { return rolled[w.namespace] })); n > limit {
		return fmt.Errorf("%d clusters are rolled out at once", n)
	}
	return nil
}

// isRolledOut tells whether the object says that an upgrade is replacing its pods.
func isRolledOut(o client.Object) bool {
	return strings.Contains(o.GetAnnotations()[cachev1alpha1.AnnotationTemplate], `"rollout"`)
}

// A version whose members never get ready stops after as many clusters as may be rolled out at once, even if
// the operator restarts. The next version rolls these out first.
func TestAnUpgradeReplacesMembersOfAFewClustersAtATime(t *testing.T) {
	const limit = 2
	w, worlds := newFleet(t, limit, 4, 2)
	unready(worlds, true)
	w.upgrade("b")
	stuck := func() []*world { return all(worlds, func(w *world) bool { return w.has("b") }) }
	w.eventually("two are rolled out, and the others wait", func() error {
		if rolled, waiting := len(stuck()), len(all(worlds, (*world).waits)); rolled != limit || waiting != len(worlds)-limit {
			return fmt.Errorf("%d are rolled out, %d wait", rolled, waiting)
		}
		return nil
	})
	first := stuck()
	held := func() error {
		if now := stuck(); fmt.Sprint(now) != fmt.Sprint(first) {
			return fmt.Errorf("%d have version b", len(now))
		}
		return noMoreThan(limit, worlds)
	}
	w.always("no other one begins", held)
	w.restartOperator()
	w.always("no other one begins with the next operator", held)
	for _, waiting := range all(worlds, (*world).waits) {
		waiting.condition(cachev1alpha1.ConditionDegraded, "False", cachev1alpha1.ReasonHealthy)
		waiting.condition(cachev1alpha1.ConditionAvailable, "True", cachev1alpha1.ReasonReady)
	}

	w.upgrade("c")
	w.eventually("the two that are stuck have the next version", func() error {
		if n := len(all(first, func(w *world) bool { return w.has("c") })); n != len(first) {
			return fmt.Errorf("%d of %d", n, len(first))
		}
		return nil
	})
	if err := noMoreThan(limit, worlds); err != nil || len(all(worlds, func(w *world) bool { return w.has("c") })) > limit {
		t.Errorf("others have it, too: %v", err)
	}
	unready(worlds, false)
	w.eventually("all have the next version", func() error {
		if err := noMoreThan(limit, worlds); err != nil {
			t.Error(err)
		}
		if n := len(all(worlds, func(w *world) bool { return w.has("c") })); n != len(worlds) {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for _, c := range worlds {
		c.settled(2)
	}
	w.eventually("nothing is marked any more", func() error { return noMoreThan(0, worlds) })
	w.quiet()
}

func TestAnUpgradeThatChangesNothingReplacesNoMember(t *testing.T) {
	tier.Second(t, "TestAtRestTheOperatorWritesNothing")
	w, worlds := newFleet(t, 1, 2, 1)
	var before []string
	for _, c := range worlds {
		before = append(before, c.members()...)
	}
	w.quiet()
	writes := len(w.journal.Writes())
	w.restartOperator()
	w.quiet()
	var after []string
	for _, c := range worlds {
		after = append(after, c.members()...)
	}
	equal(w, "the members", after, before)
	if wrote := w.journal.Writes()[writes:]; len(wrote) > 0 {
		t.Errorf("wrote %v", wrote)
	}
}

// A person's change is rolled out at once, together with the operator's change. A change that doesn't affect
// the members' template, such as the size, rolls out nothing.
func TestASpecsOwnChangeWaitsForNoUpgrade(t *testing.T) {
	w, worlds := newFleet(t, 1, 3, 1)
	unready(worlds, true)
	w.upgrade("b")
	w.soManyWait(worlds, 2)
	waiting := all(worlds, (*world).waits)
	unready(waiting, false)
	for _, c := range waiting {
		c.scale(3)
		c.eventually("three members of the version before", func() error {
			if n := len(all([]*world{c}, func(w *world) bool { return w.has("a") })); n != 1 {
				return errors.New("it is rolled out")
			}
			if s := c.memcached().Status; s.ReadySize != 3 || s.ObservedGeneration != 2 {
				return fmt.Errorf("%s", asJSON(s))
			}
			return nil
		})
	}
	for _, c := range waiting {
		c.change(c.memcached(), `{"spec":{"podTemplate":{"labels":{"team":"shop"}}}}`)
	}
	for _, c := range waiting {
		c.eventually("the label, and the new version", func() error {
			template, _ := c.template()
			if template.Labels["team"] != "shop" || !c.has("b") || c.rollsOut() {
				return fmt.Errorf("labels %v, version b: %v, by an upgrade: %v", template.Labels, c.has("b"), c.rollsOut())
			}
			return nil
		})
		c.settled(3)
	}
	if n := len(all(worlds, (*world).rollsOut)); n != 1 {
		t.Errorf("%d are rolled out by the upgrade, want the one that is stuck", n)
	}
	unready(worlds, false)
	for _, c := range all(worlds, (*world).rollsOut) {
		c.settled(2)
	}
}

// No cluster waits for a cluster that was broken before, is paused, or is deleted.
func TestAClusterThatIsBrokenPausedOrDeletedHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]func(stuck *world){
		"paused":  func(stuck *world) { stuck.change(stuck.memcached(), `{"spec":{"paused":true}}`) },
		"deleted": func(stuck *world) { stuck.delete(stuck.memcached()) },
	} {
		t.Run(what, func(t *testing.T) {
			if what != "paused" {
				tier.Second(t, "TestAClusterThatIsBrokenPausedOrDeletedHoldsNoOtherUp")
			}
			w, worlds := newFleet(t, 1, 2, 0)
			unready(worlds, true)
			w.upgrade("b")
			w.soManyWait(worlds, 1)
			waiting := all(worlds, (*world).waits)[0]
			unready([]*world{waiting}, false)
			for _, c := range all(worlds, (*world).rollsOut) {
				test(c)
			}
			waiting.eventually("it is its turn", func() error {
				if !waiting.has("b") {
					return errors.New("it is not")
				}
				return nil
			})
			waiting.settled(2)
		})
	}
	t.Run("broken", func(t *testing.T) {
		w, worlds := newFleet(t, 1, 2, 0)
		broken, well := worlds[0], worlds[1]
		kubes.Unready(broken.namespace, true)
		broken.delete(broken.pod("cache-0"))
		broken.condition(cachev1alpha1.ConditionAvailable, "False", cachev1alpha1.ReasonMembersNotReady)
		w.upgrade("b")
		well.eventually("the one that is well has the new version", func() error {
			if !well.has("b") {
				return errors.New("it has not")
			}
			return nil
		})
		well.settled(2)
		if broken.has("b") {
			t.Error("the broken one has it, too")
		}
		kubes.Unready(broken.namespace, false)
		broken.eventually("it has the new version", func() error {
			if !broken.has("b") {
				return errors.New("it has not")
			}
			return nil
		})
		broken.settled(2)
	})
}

// Clusters without a record of their version take turns, too.
func TestMembersOfAnOperatorThatRecordedNothingAreTakenOverByTurns(t *testing.T) {
	tier.Second(t, "TestAnUpgradeReplacesMembersOfAFewClustersAtATime")
	w, worlds := newFleet(t, 1, 3, 1)
	w.stopOperator()
	for _, c := range worlds {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cachev1alpha1.AnnotationTemplate)
		if set := c.statefulSet(); set != nil {
			c.change(set, patch)
		} else {
			c.change(c.deployment(), patch)
		}
	}
	unready(worlds, true)
	w.upgrade("b")
	w.eventually("one is rolled out, and two wait", func() error {
		if n := len(all(worlds, (*world).waits)); n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return noMoreThan(1, worlds)
	})
	unready(worlds, false)
	for _, c := range worlds {
		c.eventually("the new version", func() error {
			if !c.has("b") {
				return errors.New("not yet")
			}
			return noMoreThan(1, worlds)
		})
		c.settled(2)
	}
}

// routersHave tells whether the routers' template is of that version.
func (w *world) routersHave(tag string) bool {
	var deployments appsv1.DeploymentList
	w.list(&deployments, client.MatchingLabels{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentRouter})
	return len(deployments.Items) == 1 && strings.HasSuffix(deployments.Items[0].Spec.Template.Spec.Containers[0].Image, ":"+tag)
}

// Routers take turns, as members do: a version whose routers never get ready stops after as many clusters as
// may be rolled out at once.
func TestAnUpgradeReplacesRoutersOfAFewClustersAtATime(t *testing.T) {
	const limit = 1
	w := newNamespace(t)
	w.rollouts, w.images = limit, version("a")
	worlds := append([]*world{w}, w.neighbours(2)...)
	w.startOperator()
	for _, c := range worlds {
		c.create(apitest.MakeMemcached(name).Size(2).Storage("128Mi").With(routed).Obj())
	}
	for _, c := range worlds {
		c.settled(2)
	}
	have := func(tag string) int {
		return len(all(worlds, func(w *world) bool { return w.routersHave(tag) }))
	}
	unready(worlds, true)
	w.upgrade("b")
	w.eventually("one has the next version, and the others wait", func() error {
		if n, waiting := have("b"), len(all(worlds, (*world).waits)); n != limit || waiting != len(worlds)-limit {
			return fmt.Errorf("%d have it, %d wait", n, waiting)
		}
		return nil
	})
	held := func() error {
		if n := have("b"); n != limit {
			return fmt.Errorf("%d have version b", n)
		}
		return nil
	}
	w.always("no other one begins", held)
	w.restartOperator()
	w.always("no other one begins with the next operator", held)
	unready(worlds, false)
	w.eventually("all have the next version", func() error {
		if n := have("b"); n != len(worlds) {
			return fmt.Errorf("%d have it", n)
		}
		return nil
	})
	for _, c := range worlds {
		c.settled(2)
	}
	w.quiet()
}
