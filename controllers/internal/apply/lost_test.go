package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/observe"
)

// recorder has the events, each with what it is about besides the cluster.
type recorder struct{ all []string }

func (r *recorder) Eventf(_, related runtime.Object, _, reason, _, note string, args ...any) {
	about := ""
	if pod, is := related.(*corev1.Pod); is {
		about = pod.Name + ": "
	}
	r.all = append(r.all, about+reason+": "+fmt.Sprintf(note, args...))
}

// TestAnEventSaysWhichItemsAreLostBeforeTheyAre, whatever loses those of members without volumes. The recorder counts
// two events about the same objects as one, and keeps the first one's words: so each member has its own.
func TestAnEventSaysWhichItemsAreLostBeforeTheyAre(t *testing.T) {
	steps := action.ApplyStatefulSet{Replicas: 3, Steps: true, Loses: true}
	with := func(partition int32, loses bool) action.ApplyStatefulSet {
		a := steps
		a.Partition, a.Loses = partition, loses
		return a
	}
	for what, test := range map[string]struct {
		write   action.ApplyStatefulSet
		changes bool
		want    string
	}{
		"size 0":                          {action.ApplyStatefulSet{}, false, "ItemsLost: size 0"},
		"another template, without steps": {action.ApplyStatefulSet{Replicas: 3}, true, "ItemsLost: the 3 members restart"},
		"another template, with steps":    {steps, true, ""},
		"a member restarts where it is":   {with(2, true), false, "cache-2: ItemsLost: member 2 restarts"},
		"a member that has stepped out":   {with(2, false), false, ""},
		"rollout becomes Restart midway":  {action.ApplyStatefulSet{Replicas: 3, Loses: true}, false, "cache-0: ItemsLost: the members from 0 to 2 restart"},
		"the restart goes on":             {with(3, true), false, ""},
		"the members have the template":   {action.ApplyStatefulSet{Replicas: 3}, false, ""},
	} {
		cluster := apitest.MakeMemcached("cache").With(func(s *cachev1alpha1.MemcachedSpec) {
			s.Storage = &cachev1alpha1.StorageSpec{Mode: cachev1alpha1.StorageMemory}
		}).Obj()
		set := &appsv1.StatefulSet{}
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](3)}
		events := &recorder{}
		r := &run{Applier: &Applier{Events: events}, cluster: cluster, present: &observe.Objects{StatefulSet: set}}
		r.tellLost(test.write, &templateDecision{changes: test.changes}, 3)
		if got := strings.Join(events.all, "; "); !strings.HasPrefix(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

// TestAnEventSaysWhichWayMembersGetAnotherTemplate, and why: once for each roll-out, not for each reconcile.
func TestAnEventSaysWhichWayMembersGetAnotherTemplate(t *testing.T) {
	for what, test := range map[string]struct {
		change  func(*cachev1alpha1.MemcachedSpec)
		write   action.ApplyStatefulSet
		changes bool
		want    string
	}{
		"steps":                      {routed, action.ApplyStatefulSet{Steps: true, Partition: 3}, true, ""},
		"rollout is Restart":         {func(s *cachev1alpha1.MemcachedSpec) { routed(s); s.Rollout = cachev1alpha1.RolloutRestart }, action.ApplyStatefulSet{}, true, "rollout is Restart"},
		"direct clients":             {func(*cachev1alpha1.MemcachedSpec) {}, action.ApplyStatefulSet{}, true, "router.exclusive is not set"},
		"the first one doesn't step": {routed, action.ApplyStatefulSet{Steps: true, Partition: 2, Why: "it is away"}, false, "member 2 gets another template, and restarts where it is: it is away"},
		"the next ones neither":      {routed, action.ApplyStatefulSet{Steps: true, Partition: 1}, false, ""},
		"the restart goes on":        {routed, action.ApplyStatefulSet{Steps: true, Partition: 3, Why: "it is away"}, false, ""},
	} {
		cluster := apitest.MakeMemcached("cache").Storage("128Mi").With(test.change).Obj()
		set := &appsv1.StatefulSet{}
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](3)}
		events := &recorder{}
		r := &run{Applier: &Applier{Events: events}, cluster: cluster, present: &observe.Objects{StatefulSet: set}}
		r.tellRollOut(test.write, &templateDecision{changes: test.changes})
		if got := strings.Join(events.all, "; "); !strings.HasSuffix(got, test.want) || (test.want == "") != (got == "") || len(events.all) > 1 {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

func routed(s *cachev1alpha1.MemcachedSpec) { s.Router = &cachev1alpha1.RouterSpec{Exclusive: true} }

// TestAnEventSaysThatEvictionsLoseItems once, before the budget opens.
func TestAnEventSaysThatEvictionsLoseItems(t *testing.T) {
	budget := func(most int32) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{}
		b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(most))
		return b
	}
	const why = "member 0 is away"
	for what, test := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		write  action.ApplyBudget
		want   bool
	}{
		"it opens":                     {budget(0), action.ApplyBudget{Loses: why}, true},
		"it is open":                   {budget(1), action.ApplyBudget{Loses: why}, false},
		"it opens, and nothing's lost": {budget(0), action.ApplyBudget{}, false},
		"it stays shut":                {budget(0), action.ApplyBudget{StepOut: true}, false},
		"there is none":                {nil, action.ApplyBudget{Loses: why}, false},
	} {
		events := &recorder{}
		r := &run{Applier: &Applier{Events: events}, cluster: apitest.MakeMemcached("cache").Obj(), present: &observe.Objects{Budget: test.budget}}
		r.tellEvicted(test.write)
		says := slices.ContainsFunc(events.all, func(e string) bool { return strings.HasPrefix(e, "ItemsLost: ") && strings.Contains(e, why) })
		if len(events.all) > 1 || says != test.want {
			t.Errorf("%s: %q", what, events.all)
		}
	}
}
