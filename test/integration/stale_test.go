package integration

import (
	"context"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/api/v1alpha1/apitest"
	"example.com/memcached-operator/controllers"
	"example.com/memcached-operator/test/tier"
)

// behind is a cache that lags: the test edits its lists before the operator gets them.
type behind struct {
	client.Client
	edit func(client.ObjectList)
}

func (b behind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := b.Client.List(ctx, list, options...)
	b.edit(list)
	return err
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := b.Client.Get(ctx, key, object, options...)
	if c, ok := object.(*corev1.ConfigMap); ok && err == nil {
		list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*c}}
		b.edit(list)
		*c = list.Items[0]
	}
	return err
}

// reconcileBehind runs one reconcile on a cache that lags.
func (w *world) reconcileBehind(edit func(client.ObjectList)) {
	w.Helper()
	r := w.running().Reconciler
	late := &controllers.MemcachedReconciler{
		Client: behind{r.Client, edit}, Live: r.Live, Events: r.Events, Options: r.Options, Clock: r.Clock,
	}
	if _, err := late.Reconcile(w.Context(), ctrl.Request{NamespacedName: w.key(name)}); err != nil {
		w.Errorf("reconcile: %v", err)
	}
}

// These edit objects that the cache doesn't have yet.
func withoutJobs(list client.ObjectList) {
	if l, ok := list.(*batchv1.JobList); ok {
		l.Items = nil
	}
}

func withoutPods(list client.ObjectList) {
	if l, ok := list.(*corev1.PodList); ok {
		l.Items = nil
	}
}

func withoutMarks(list client.ObjectList) {
	if l, ok := list.(*corev1.PersistentVolumeClaimList); ok {
		for i := range l.Items {
			l.Items[i].Annotations = nil
		}
	}
}

func withSkips(list client.ObjectList) {
	if l, ok := list.(*corev1.PersistentVolumeClaimList); ok {
		for i := range l.Items {
			metav1.SetMetaDataAnnotation(&l.Items[i].ObjectMeta, cachev1alpha1.AnnotationDrain, cachev1alpha1.DrainSkip)
		}
	}
}

func withoutRings(list client.ObjectList) {
	if l, ok := list.(*corev1.ConfigMapList); ok {
		for i := range l.Items {
			delete(l.Items[i].Annotations, cachev1alpha1.AnnotationRing)
		}
	}
}

func together(edits ...func(client.ObjectList)) func(client.ObjectList) {
	return func(list client.ObjectList) {
		for _, edit := range edits {
			edit(list)
		}
	}
}

// Each of these reconciles would break an invariant if it trusted its cache.
func TestACacheThatIsBehindLeadsToNothingThatCannotBeUndone(t *testing.T) {
	for what, test := range map[string]struct {
		begin func(*world)
		edit  func(client.ObjectList)
	}{
		"a member's pod lives: no second user of its volume": {
			func(w *world) { lingering(w, apitest.MakeMemcached(name)) }, withoutPods,
		},
		"a drainer runs: no second one": {
			func(w *world) { w.hangingDrain(apitest.MakeMemcached(name)) }, together(withoutJobs, withoutPods),
		},
		"a drainer runs: the size stays": {
			func(w *world) {
				w.hangingDrain(apitest.MakeMemcached(name))
				w.scale(3)
				w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
			},
			together(withoutJobs, withoutMarks),
		},
		"a drainer runs: the size does not shrink either": {
			func(w *world) {
				w.hangingDrain(apitest.MakeMemcached(name))
				w.scale(1)
				w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
			},
			withoutJobs,
		},
		"a volume was left: its member does not return to it": {
			func(w *world) {
				lingering(w, apitest.MakeMemcached(name))
				w.scale(3)
				w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForDrain)
			},
			together(withoutJobs, withoutMarks),
		},
		"no person gave the items up: the claim stays": {
			func(w *world) { w.failedDrain() }, withSkips,
		},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "a drainer runs: the size does not shrink either" {
				tier.Second(t, "TestACacheThatIsBehindLeadsToNothingThatCannotBeUndone")
			}
			w := newWorld(t)
			test.begin(w)
			before, marked, size := w.mountable(), w.marked(), *w.statefulSet().Spec.Replicas
			from := len(w.journal.Writes())
			w.reconcileBehind(test.edit)
			equal(w, "claims", w.mountable(), before)
			equal(w, "claims with a leaving mark", w.marked(), marked)
			equal(w, "replicas", *w.statefulSet().Spec.Replicas, size)
			for _, write := range w.journal.Writes()[from:] {
				if write.Resource == "jobs" && write.Status < 300 {
					t.Errorf("%s: %d", write, write.Status)
				}
			}
		})
	}
}

// A mark is never removed. With a mark, the member would leave before its items are moved.
func TestACacheThatIsBehindTellsNoMemberToLeaveBeforeItemsAreMoved(t *testing.T) {
	tier.Second(t, "TestACacheThatIsBehindLeadsToNothingThatCannotBeUndone")
	w := moving(t, 2, 3)
	w.scale(1)
	w.condition(cachev1alpha1.ConditionProgressing, "True", cachev1alpha1.ReasonWaitingForMove)
	ring := w.serverList().Annotations[cachev1alpha1.AnnotationRing]
	w.reconcileBehind(together(withoutJobs, withoutRings))
	equal(w, "replicas", *w.statefulSet().Spec.Replicas, 3)
	equal(w, "the ring", w.serverList().Annotations[cachev1alpha1.AnnotationRing], ring)
	for _, c := range w.claims() {
		equal(w, "the mark on claim "+c.Name, c.Annotations[cachev1alpha1.AnnotationLeaving], "")
	}
}

// marked returns the claims with a leaving mark.
func (w *world) marked() []string {
	var out []string
	for _, c := range w.claims() {
		if c.Annotations[cachev1alpha1.AnnotationLeaving] != "" {
			out = append(out, c.Name)
		}
	}
	return out
}

// mountable returns the claims that have the operator's finalizer, and are not being deleted.
func (w *world) mountable() []string {
	var out []string
	for _, c := range w.claims() {
		if c.DeletionTimestamp == nil && slices.Contains(c.Finalizers, cachev1alpha1.ClaimFinalizer) {
			out = append(out, c.Name)
		}
	}
	return out
}
