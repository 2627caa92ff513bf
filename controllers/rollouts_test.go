package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/rollout"
)

// fleet is an API server that has clusters, and roll-outs that an earlier operator
// began.
type fleet struct {
	client.Client
	clusters map[string]*cachev1alpha1.Memcached
	begun    map[string]rollout.Mark
	lists    int
	// namespaced: nobody may list in all namespaces.
	namespaced bool
}

func (f *fleet) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c := f.clusters[key.Name]
	if c == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.DeepCopyInto(object.(*cachev1alpha1.Memcached))
	return nil
}

func (f *fleet) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l, ok := list.(*cachev1alpha1.MemcachedList); ok {
		for name := range f.clusters {
			l.Items = append(l.Items, cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}})
		}
		return nil
	}
	f.lists++
	var o client.ListOptions
	o.ApplyOptions(options)
	if f.namespaced && o.Namespace == "" {
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}
	l := list.(*metav1.PartialObjectMetadataList)
	l.Items = nil
	if l.Kind != "StatefulSetList" {
		return nil
	}
	for name, mark := range f.begun {
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		object.Annotations = map[string]string{cachev1alpha1.AnnotationTemplate: rollout.Record{Mark: &mark}.String()}
		l.Items = append(l.Items, object)
	}
	return nil
}

// calls are who was told to ask again.
type calls struct {
	queue
	names []string
}

func (c *calls) AddAfter(r ctrl.Request, _ time.Duration) { c.names = append(c.names, r.Name) }

type turnTest struct {
	*testing.T
	*fleet
	r     *MemcachedReconciler
	clock *testingclock.FakePassiveClock
	calls *calls
}

func newTurns(t *testing.T, limit int, clusters ...string) *turnTest {
	f := &fleet{clusters: map[string]*cachev1alpha1.Memcached{}, begun: map[string]rollout.Mark{}}
	for _, name := range clusters {
		f.clusters[name] = &cachev1alpha1.Memcached{}
	}
	clock := testingclock.NewFakePassiveClock(time.Unix(100000, 0))
	s := &turnTest{T: t, fleet: f, clock: clock, calls: &calls{}}
	s.r = &MemcachedReconciler{Client: f, Live: f, Clock: clock, RolloutsAtOnce: limit}
	s.r.wakes.queue = s.calls
	return s
}

func ns(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

// asks for a turn, and says whether the cluster is to get it.
func (s *turnTest) asks(name string, ready, want bool) *rollout.Mark {
	s.Helper()
	mark, why, err := s.r.turn(s.Context(), ns(name), ready)
	if err != nil || (mark != nil) != want || (why == "") != want {
		s.Errorf("%s asks: got %v (%q), %v; want a turn: %v", name, mark, why, err, want)
	}
	return mark
}

func (s *turnTest) told(want ...string) {
	s.Helper()
	if fmt.Sprint(s.calls.names) != fmt.Sprint(want) {
		s.Errorf("told to ask again: %v, want %v", s.calls.names, want)
	}
	s.calls.names = nil
}

func TestNoMoreTurnsAreGivenThanTheLimitThoughTheCacheKnowsOfNone(t *testing.T) {
	s := newTurns(t, 2, "a", "b", "c", "d")
	a := s.asks("a", true, true)
	s.asks("b", true, true)
	s.asks("c", true, false)
	s.clock.SetTime(s.clock.Now().Add(time.Second))
	s.asks("d", true, false)
	s.told()
	s.r.leave(ns("a"), a)
	s.told("c")
	s.asks("c", true, true)
	s.asks("d", true, false)
	if s.lists != 2 {
		t.Errorf("looked %d times for an earlier operator's, want once for each kind", s.lists)
	}
	// The cache shows a's mark still, and then no more.
	if mark := s.r.rollouts.mark(ns("a"), &rollout.Record{Mark: a}); mark != nil {
		t.Errorf("a roll-out that is done goes on: %+v", mark)
	}
	s.r.rollouts.mark(ns("a"), &rollout.Record{})
	if mark := s.r.rollouts.mark(ns("a"), &rollout.Record{Mark: a}); mark == nil {
		t.Error("what somebody wrote since does not count")
	}
	// It doesn't show c's yet.
	if mark := s.r.rollouts.mark(ns("c"), nil); mark == nil {
		t.Error("a roll-out that has begun is not known")
	}
}

func TestTurnsOfAnEarlierOperatorCount(t *testing.T) {
	for _, namespaced := range []bool{false, true} {
		s := newTurns(t, 2, "a", "b", "c")
		s.namespaced = namespaced
		s.begun["another operator's"] = rollout.Mark{Since: s.clock.Now()}
		s.begun["a"] = rollout.Mark{Since: s.clock.Now()}
		s.asks("b", true, true)
		s.asks("c", true, false)
	}
}

func TestWhoIsPausedDeletedOrGoneHoldsNoTurn(t *testing.T) {
	deleted := metav1.Now()
	for name, change := range map[string]func(*turnTest){
		"paused":  func(s *turnTest) { s.clusters["a"].Spec.Paused = true; s.r.standAside(ns("a")) },
		"deleted": func(s *turnTest) { s.clusters["a"].DeletionTimestamp = &deleted; s.r.leave(ns("a"), nil) },
		"gone":    func(s *turnTest) { delete(s.clusters, "a"); s.r.forget(ns("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t, 1, "a", "b")
			s.asks("a", true, true)
			s.asks("b", true, false)
			change(s)
			s.told("b")
			s.asks("b", true, true)
		})
	}
}

func TestClustersThatAreReadyGoFirst(t *testing.T) {
	s := newTurns(t, 1, "broken", "a", "b")
	s.asks("broken", false, false) // the others are not known yet
	a := s.asks("a", true, true)
	s.asks("b", true, false)
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	s.asks("broken", false, false)
	s.asks("b", true, false)
	s.r.leave(ns("a"), a)
	s.told("b")
	s.asks("broken", false, false)
	s.told("b")
	b := s.asks("b", true, true)
	s.r.leave(ns("b"), b)
	s.told("broken")
	broken := s.asks("broken", false, true)
	if !broken.Unready {
		t.Error("its mark does not say that it was not ready")
	}
	s.asks("a", true, false)
	s.clock.SetTime(s.clock.Now().Add(rollout.UnreadyTime))
	s.asks("a", true, true)
}

// Who is told to ask, and gets no turn, must not tell others: they would tell each other
// for ever.
func TestClustersThatWaitDoNotWakeEachOther(t *testing.T) {
	for name, stuck := range map[string]bool{"none is ready": false, "one that is ready asks no more": true} {
		s := newTurns(t, 2, "a", "b", "first", "second", "stuck")
		if stuck {
			first, second := s.asks("first", true, true), s.asks("second", true, true)
			s.asks("stuck", true, false)
			s.r.leave(ns("first"), first)
			s.r.leave(ns("second"), second)
			s.calls.names = nil
		}
		s.calls.names = []string{"a", "b"}
		asked := 0
		for ; len(s.calls.names) > 0 && asked < 100; asked++ {
			next := s.calls.names[0]
			s.calls.names = s.calls.names[1:]
			if next != "stuck" { // its reconcile ends before it asks
				s.asks(next, false, false)
			}
		}
		if asked > 10 {
			t.Errorf("%s: they asked %d times while the clock stood still", name, asked)
		}
	}
}

func TestOneThatAsksNoMoreHoldsNobodyUp(t *testing.T) {
	s := newTurns(t, 1, "broken", "a", "b")
	a := s.asks("a", true, true)
	s.asks("b", true, false) // and then its reconciles fail before it asks
	s.asks("broken", false, false)
	s.r.leave(ns("a"), a)
	s.told("b")
	s.clock.SetTime(s.clock.Now().Add(3 * turnInterval))
	s.asks("broken", false, true)
}

func TestATurnIsGivenBackWhereTheAPIServerRefuses(t *testing.T) {
	o := &observed{cluster: &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}}
	for name, test := range map[string]struct {
		err  error
		back bool
	}{
		"forbidden":           {apierrors.NewForbidden(schema.GroupResource{}, "a", nil), true},
		"refused by a check":  {refuse("no"), true},
		"the cache is behind": {errBehind, true},
		"no answer":           {errors.New("the connection broke"), false},
		"its own troubles":    {apierrors.NewInternalError(errors.New("etcd")), false},
		"done":                {nil, false},
	} {
		s := newTurns(t, 1, "a", "b")
		mark := s.asks("a", true, true)
		s.r.decidedApplied(o, &decided{record: rollout.Record{Mark: mark}, began: true}, test.err)
		if _, has := s.r.rollouts.turns[ns("a")]; has == test.back {
			t.Errorf("%s: it has its turn: %v", name, has)
		}
	}
}
