package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

func second(n int64) metav1.Time { return metav1.NewTime(time.Unix(n, 0)) }

// TestWhatLacksAPodIsFound: a StatefulSet with fewer pods than replicas, and a Job that
// is active without one. What has all its pods is not looked at.
func TestWhatLacksAPodIsFound(t *testing.T) {
	statefulSet := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "cache", UID: "sts", CreationTimestamp: second(10)}}
	statefulSet.Spec.Replicas = ptr.To[int32](2)
	member := func(name string, at int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: second(at)}}
	}
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: "job", UID: "job", CreationTimestamp: second(20), Labels: map[string]string{cachev1alpha1.LabelComponent: cachev1alpha1.ComponentDrainer},
		Annotations: map[string]string{cachev1alpha1.AnnotationClaimUID: "claim", cachev1alpha1.AnnotationSurvivors: "1"},
	}}
	ended := job.DeepCopy()
	ended.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
	drainer := func(phase corev1.PodPhase, at int64) corev1.Pod {
		p := member("d", at)
		p.Labels, p.Status.Phase = map[string]string{batchv1.JobNameLabel: "job"}, phase
		return p
	}
	both := []corev1.Pod{member("cache-0", 11), member("cache-1", 12)}
	for name, test := range map[string]struct {
		o    observed
		want []lacking
	}{
		"nothing":           {observed{statefulSet: statefulSet, pods: both}, nil},
		"no StatefulSet":    {observed{}, nil},
		"one member":        {observed{statefulSet: statefulSet, pods: both[1:]}, []lacking{{uid: "sts", kind: "StatefulSet", name: "cache", newest: time.Unix(12, 0)}}},
		"one that leaves":   {observed{statefulSet: statefulSet, pods: []corev1.Pod{both[0], member("cache-7", 99), member("other", 98)}}, []lacking{{uid: "sts", kind: "StatefulSet", name: "cache", newest: time.Unix(11, 0)}}},
		"a drainer":         {observed{jobs: []batchv1.Job{job}}, []lacking{{uid: "job", kind: "Job", name: "job", claim: "claim", newest: time.Unix(20, 0)}}},
		"the next drainer":  {observed{jobs: []batchv1.Job{job}, drainerPods: []corev1.Pod{drainer(corev1.PodFailed, 30)}}, []lacking{{uid: "job", kind: "Job", name: "job", claim: "claim", newest: time.Unix(30, 0)}}},
		"a drainer that is": {observed{placements: []batchv1.Job{job}, drainerPods: []corev1.Pod{drainer(corev1.PodPending, 30)}}, nil},
		"a Job that ended":  {observed{jobs: []batchv1.Job{*ended}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.cluster = &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: "cache"}}
			if diff := cmp.Diff(test.want, test.o.lacks(), cmp.AllowUnexported(lacking{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTheNewestFailureCounts, and none from before the last pod was made.
func TestTheNewestFailureCounts(t *testing.T) {
	event := func(at int64, message string) corev1.Event {
		return corev1.Event{LastTimestamp: second(at), Message: message}
	}
	series := corev1.Event{EventTime: metav1.NewMicroTime(time.Unix(1, 0)), Message: "series", Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(time.Unix(90, 0))}}
	for name, test := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"none":             {nil, ""},
		"an old one":       {[]corev1.Event{event(49, "quota")}, ""},
		"of the same time": {[]corev1.Event{event(50, "quota")}, "quota"},
		"the newest":       {[]corev1.Event{event(60, "first"), event(80, "last"), event(70, "second")}, "last"},
		"a series":         {[]corev1.Event{event(60, "first"), series}, "series"},
	} {
		if got := lastFailure(test.events, time.Unix(50, 0)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestWhatLacksAPodIsRememberedFromItsFirstSight until it lacks none.
func TestWhatLacksAPodIsRememberedFromItsFirstSight(t *testing.T) {
	var m lackMemory
	cluster := &metav1.ObjectMeta{Namespace: "shop", Name: "cache"}
	a, b := lacking{uid: "a"}, lacking{uid: "b"}
	m.remember(cluster, []lacking{a}, time.Unix(1, 0))
	m.learn(cluster, "a", lack{since: time.Unix(1, 0), why: "quota"})
	got := m.remember(cluster, []lacking{a, b}, time.Unix(2, 0))
	want := map[types.UID]lack{"a": {since: time.Unix(1, 0), why: "quota"}, "b": {since: time.Unix(2, 0)}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(lack{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	m.remember(cluster, []lacking{b}, time.Unix(3, 0))
	if got := m.remember(cluster, []lacking{a}, time.Unix(4, 0)); got["a"].since != time.Unix(4, 0) || len(got) != 1 {
		t.Errorf("%+v", got)
	}
	m.remember(cluster, nil, time.Unix(5, 0))
	m.Use(client.ObjectKey{Namespace: "shop", Name: "cache"}, func(kept *map[types.UID]lack) {
		if len(*kept) != 0 {
			t.Errorf("kept: %+v", *kept)
		}
	})
}
