package read

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func second(n int64) metav1.Time { return metav1.NewTime(time.Unix(n, 0)) }

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

// An owner that lacks a pod is remembered from its first sight until the pod is there.
func TestAnOwnerThatLacksAPodIsRememberedFromItsFirstSight(t *testing.T) {
	var p MissingPods
	cluster := client.ObjectKey{Namespace: "shop", Name: "cache"}
	a, b := &PodOwner{UID: "a"}, &PodOwner{UID: "b"}
	p.remember(cluster, []*PodOwner{a}, time.Unix(1, 0))
	p.learn(cluster, "a", lack{Lack: Lack{Since: time.Unix(1, 0), Why: "quota"}})
	got := p.remember(cluster, []*PodOwner{a, b}, time.Unix(2, 0))
	want := map[types.UID]lack{"a": {Lack: Lack{Since: time.Unix(1, 0), Why: "quota"}}, "b": {Lack: Lack{Since: time.Unix(2, 0)}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(lack{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.remember(cluster, []*PodOwner{b}, time.Unix(3, 0))
	if got := p.remember(cluster, []*PodOwner{a}, time.Unix(4, 0)); got["a"].Since != time.Unix(4, 0) || len(got) != 1 {
		t.Errorf("%+v", got)
	}
	p.remember(cluster, nil, time.Unix(5, 0))
	p.kept.Use(cluster, func(kept *map[types.UID]lack) {
		if len(*kept) != 0 {
			t.Errorf("kept: %+v", *kept)
		}
	})
}

// eventList is an API server that has one event of each object, and counts how often it is
// asked.
type eventList struct {
	client.Reader
	asked int
}

func (e *eventList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	e.asked++
	list.(*corev1.EventList).Items = []corev1.Event{{LastTimestamp: second(1000), Message: "exceeded quota"}}
	return nil
}

// TestEventsAreReadWhenAPodIsMissingForAWhile: not at once, not all the time, and of a few
// objects only.
func TestEventsAreReadWhenAPodIsMissingForAWhile(t *testing.T) {
	var p MissingPods
	live, cluster := &eventList{}, client.ObjectKey{Namespace: "shop", Name: "cache"}
	var owners []*PodOwner
	for _, uid := range []types.UID{"a", "b", "c", "d", "e"} {
		owners = append(owners, &PodOwner{UID: uid})
	}
	began := time.Unix(1000, 0)
	for _, step := range []struct {
		name   string
		owners []*PodOwner
		after  time.Duration
		asked  int
		wait   time.Duration
		known  int
	}{
		{"none is missing", nil, 0, 0, 0, 0},
		{"just now", owners, 0, 0, missingAfter, 0},
		{"a moment later", owners, missingAfter - time.Second, 0, time.Second, 0},
		{"for a while", owners, missingAfter, maxLooks, time.Second, maxLooks},
		{"the rest", owners, missingAfter + time.Second, 1, lookInterval - time.Second, 5},
		{"they are known", owners, missingAfter + 2*time.Second, 0, lookInterval - 2*time.Second, 5},
		{"once more", owners[:1], missingAfter + lookInterval, 1, lookInterval, 1},
	} {
		live.asked = 0
		reasons, wait := p.Why(t.Context(), live, cluster, step.owners, began.Add(step.after))
		known := 0
		for _, r := range reasons {
			if r.Why == "exceeded quota" && r.Since.Equal(began) {
				known++
			}
		}
		if live.asked != step.asked || wait != step.wait || known != step.known {
			t.Errorf("%s: asked %d times, %d are known, again after %s; want %d, %d, %s",
				step.name, live.asked, known, wait, step.asked, step.known, step.wait)
		}
	}
}
