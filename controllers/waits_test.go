package controllers

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/identity"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/remembered"
)

func TestTheShortestWaitCounts(t *testing.T) {
	var w read.Requeue
	for _, step := range []struct{ wait, want time.Duration }{
		{0, 0}, {time.Minute, time.Minute}, {time.Hour, time.Minute}, {time.Second, time.Second}, {0, time.Second}, {-1, time.Second},
	} {
		if w.AtMost(step.wait); w.Shortest != step.want {
			t.Errorf("after %s: got %s, want %s", step.wait, w.Shortest, step.want)
		}
	}
	if w.When(false, 1); w.Shortest != time.Second {
		t.Errorf("a detail: got %s", w.Shortest)
	}
}

func TestAFailureIsTriedAgainSlowerAndSlowerUpToAMinute(t *testing.T) {
	b := newBackoff()
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "cache"}}
	want := 500 * time.Millisecond
	for range 1000 {
		if got := b.When(request); got < want || got > want+want/5 {
			t.Fatalf("got %s, want %s and at most a fifth", got, want)
		}
		want = min(2*want, time.Minute)
	}
	b.Forget(request)
	if got := b.When(request); got > time.Second {
		t.Errorf("after a success: %s", got)
	}
}

func TestARefusalIsTriedAgainSlowerAndSlowerHoweverManyEventsCome(t *testing.T) {
	var r remembered.Refusals
	key := client.ObjectKey{Name: "cache"}
	began := time.Unix(1000, 0)
	now, tries := began, 0
	for now.Before(began.Add(10 * time.Minute)) {
		for range 50 { // events that come meanwhile
			if since := r.Note(key, "the size is held", now); !since.Equal(began) {
				t.Fatalf("since %s, want %s", since, began)
			}
		}
		now = now.Add(retryAfter(now.Sub(began)))
		tries++
	}
	if tries < 10 || tries > 20 {
		t.Errorf("tried %d times in 10 minutes", tries)
	}
	r.Forget(key)
	if since := r.Note(key, "the size is held", now); !since.Equal(now) {
		t.Errorf("after a reconcile without it: since %s", since)
	}
}

// queue records its calls.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	after []time.Duration
}

func (q *queue) AddAfter(_ ctrl.Request, d time.Duration) { q.after = append(q.after, d) }

func TestAFailureDropsNoTimedWait(t *testing.T) {
	for name, test := range map[string]struct {
		apply, status error
		due           time.Duration
		// after is when to reconcile again: by the result, or beside an error.
		after time.Duration
		fails bool
	}{
		"all is well":           {nil, nil, 2 * time.Second, 2 * time.Second, false},
		"the apply fails":       {errors.New("no"), nil, 2 * time.Second, 2 * time.Second, true},
		"the status fails":      {nil, errors.New("no"), 2 * time.Second, 2 * time.Second, true},
		"nothing is due":        {errors.New("no"), nil, 0, 0, true},
		"the name is taken":     {&identity.NameTakenError{}, nil, 2 * time.Second, 2 * time.Second, false},
		"it is, nothing is due": {&identity.NameTakenError{}, nil, 0, foreignInterval, false},
		"two at the same time":  {nil, apierrors.NewConflict(schema.GroupResource{}, "cache", nil), 0, retryFirst, false},
	} {
		q := &queue{}
		r := &MemcachedReconciler{Clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0))}
		r.wakes.queue = q
		o := &outcome{State: &observe.State{Cluster: &cachev1alpha1.Memcached{}, Waits: read.Requeue{Shortest: test.due}}}
		result, err := r.result(o, &plan.Plan{}, test.apply, test.status)
		if test.fails {
			if len(q.after) > 0 {
				result.RequeueAfter = q.after[0]
			}
		}
		if (err != nil) != test.fails || result.RequeueAfter != test.after {
			t.Errorf("%s: after %s, %v; want after %s", name, result.RequeueAfter, err, test.after)
		}
	}
}
