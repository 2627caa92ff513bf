package rollout

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// fleet is an API server with clusters, and with roll-outs that an earlier operator began.
type fleet struct {
	client.Client
	clusters map[string]*cachev1alpha1.Memcached
	begun    map[string]Turn
	lists    int
	// namespaced: the operator may not list in all namespaces.
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
	for name, turn := range f.begun {
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		object.Annotations = map[string]string{cachev1alpha1.AnnotationTemplate: Record{Turn: &turn}.String()}
		l.Items = append(l.Items, object)
	}
	return nil
}

type turnTest struct {
	*testing.T
	*fleet
	turns *Turns
	clock *testingclock.FakePassiveClock
	// calls has the clusters that were woken.
	calls []string
}

func newTurns(t *testing.T, limit int, clusters ...string) *turnTest {
	f := &fleet{clusters: map[string]*cachev1alpha1.Memcached{}, begun: map[string]Turn{}}
	for _, name := range clusters {
		f.clusters[name] = &cachev1alpha1.Memcached{}
	}
	clock := testingclock.NewFakePassiveClock(time.Unix(100000, 0))
	s := &turnTest{T: t, fleet: f, clock: clock}
	s.turns = NewTurns(Options{
		Cache: f, Live: f, AtOnce: limit, Clock: clock,
		Wake: func(key client.ObjectKey) { s.calls = append(s.calls, key.Name) },
		Tell: func(int, int) {},
	})
	return s
}

func ns(name string) client.ObjectKey { return client.ObjectKey{Namespace: "ns", Name: name} }

// asks lets the cluster ask for a turn, and checks whether it gets one.
func (s *turnTest) asks(name string, ready, want bool) *Turn {
	s.Helper()
	turn, why, err := s.turns.take(s.Context(), ns(name), ready)
	if err != nil || (turn != nil) != want || (why == "") != want {
		s.Errorf("%s asks: got %v (%q), %v; want a turn: %v", name, turn, why, err, want)
	}
	return turn
}

func (s *turnTest) told(want ...string) {
	s.Helper()
	if fmt.Sprint(s.calls) != fmt.Sprint(want) {
		s.Errorf("told to ask again: %v, want %v", s.calls, want)
	}
	s.calls = nil
}

func TestNoMoreTurnsAreGivenThanTheLimitThoughTheCacheKnowsOfNone(t *testing.T) {
	s := newTurns(t, 2, "a", "b", "c", "d")
	a := s.asks("a", true, true)
	s.asks("b", true, true)
	s.asks("c", true, false)
	s.clock.SetTime(s.clock.Now().Add(time.Second))
	s.asks("d", true, false)
	s.told()
	s.turns.giveBack(ns("a"), a)
	s.told("c")
	s.asks("c", true, true)
	s.asks("d", true, false)
	if s.lists != 2 {
		t.Errorf("looked %d times for an earlier operator's, want once for each kind", s.lists)
	}
	// The cache still has a's turn, and later no longer.
	if turn := s.turns.turnOf(ns("a"), &Record{Turn: a}); turn != nil {
		t.Errorf("a roll-out that is done goes on: %+v", turn)
	}
	s.turns.turnOf(ns("a"), &Record{})
	if turn := s.turns.turnOf(ns("a"), &Record{Turn: a}); turn == nil {
		t.Error("a later write by another client does not count")
	}
	// The cache doesn't have c's turn yet.
	if turn := s.turns.turnOf(ns("c"), nil); turn == nil {
		t.Error("a roll-out that has begun is not known")
	}
}

func TestTurnsOfAnEarlierOperatorCount(t *testing.T) {
	for _, namespaced := range []bool{false, true} {
		s := newTurns(t, 2, "a", "b", "c")
		s.namespaced = namespaced
		s.begun["another operator's"] = Turn{Since: s.clock.Now()}
		s.begun["a"] = Turn{Since: s.clock.Now()}
		s.asks("b", true, true)
		s.asks("c", true, false)
	}
}

func TestAPausedDeletedOrGoneClusterHoldsNoTurn(t *testing.T) {
	deleted := metav1.Now()
	for name, change := range map[string]func(*turnTest){
		"paused":  func(s *turnTest) { s.clusters["a"].Spec.Paused = true; s.turns.StandAside(ns("a")) },
		"deleted": func(s *turnTest) { s.clusters["a"].DeletionTimestamp = &deleted; s.turns.Forget(ns("a")) },
		"gone":    func(s *turnTest) { delete(s.clusters, "a"); s.turns.Forget(ns("a")) },
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
	s.asks("broken", false, false) // the other clusters are not known yet
	a := s.asks("a", true, true)
	s.asks("b", true, false)
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	s.asks("broken", false, false)
	s.asks("b", true, false)
	s.turns.giveBack(ns("a"), a)
	s.told("b")
	s.asks("broken", false, false)
	s.told("b")
	b := s.asks("b", true, true)
	s.turns.giveBack(ns("b"), b)
	s.told("broken")
	broken := s.asks("broken", false, true)
	if !broken.Unready {
		t.Error("its turn does not say that it was not ready")
	}
	s.asks("a", true, false)
	s.clock.SetTime(s.clock.Now().Add(UnreadyTime))
	s.asks("a", true, true)
}

// A cluster that is woken and gets no turn must wake no others: they would wake each
// other forever.
func TestClustersThatWaitDoNotWakeEachOther(t *testing.T) {
	for name, stuck := range map[string]bool{"none is ready": false, "one that is ready asks no more": true} {
		s := newTurns(t, 2, "a", "b", "first", "second", "stuck")
		if stuck {
			first, second := s.asks("first", true, true), s.asks("second", true, true)
			s.asks("stuck", true, false)
			s.turns.giveBack(ns("first"), first)
			s.turns.giveBack(ns("second"), second)
			s.calls = nil
		}
		s.calls = []string{"a", "b"}
		asked := 0
		for ; len(s.calls) > 0 && asked < 100; asked++ {
			next := s.calls[0]
			s.calls = s.calls[1:]
			if next != "stuck" { // the reconcile of stuck ends before it asks
				s.asks(next, false, false)
			}
		}
		if asked > 10 {
			t.Errorf("%s: they asked %d times while the clock stood still", name, asked)
		}
	}
}

func TestAClusterThatAsksNoMoreHoldsNoneUp(t *testing.T) {
	s := newTurns(t, 1, "broken", "a", "b")
	a := s.asks("a", true, true)
	s.asks("b", true, false) // and then its reconciles fail before it asks
	s.asks("broken", false, false)
	s.turns.giveBack(ns("a"), a)
	s.told("b")
	s.clock.SetTime(s.clock.Now().Add(3 * turnInterval))
	s.asks("broken", false, true)
}

func TestATurnIsGivenBackWhereTheRollOutIsDoneOrDidNotBegin(t *testing.T) {
	differs := &Members{Differs: true, Ready: true, Generation: 1, Spec: "a", Recorded: &Record{Generation: 1, Spec: "a"}}
	for name, test := range map[string]struct {
		then func(s *turnTest, d *Decision)
		back bool
	}{
		"the write is refused": {func(s *turnTest, d *Decision) { s.turns.Refused(ns("a"), d) }, true},
		"it is written":        {func(s *turnTest, d *Decision) { s.turns.Applied(ns("a"), d) }, false},
		"the write is unknown": {func(*turnTest, *Decision) {}, false},
		"it is done": {func(s *turnTest, d *Decision) {
			s.turns.Applied(ns("a"), d)
			done := *differs
			done.Differs, done.Recorded = false, &d.Record
			if d = s.decides("a", &done); d.Record.Turn != nil || !d.Settled {
				s.Errorf("all members are ready: got %+v", d)
			}
			s.turns.Applied(ns("a"), d)
		}, true},
		"it goes on, and the write is refused": {func(s *turnTest, d *Decision) {
			s.turns.Applied(ns("a"), d)
			more := *differs
			more.Recorded = &d.Record
			s.turns.Refused(ns("a"), s.decides("a", &more))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTurns(t, 1, "a", "b")
			d := s.decides("a", differs)
			if d.Record.Turn == nil || d.Keep || d.Settled {
				t.Fatalf("it has no turn: %+v", d)
			}
			if waits := s.decides("b", differs); !waits.Keep || waits.Why == "" || waits.DueIn != turnInterval {
				t.Errorf("another one does not wait: %+v", waits)
			}
			test.then(s, d)
			if _, has := s.turns.turns[ns("a")]; has == test.back {
				t.Errorf("it has its turn: %v", has)
			}
		})
	}
}

func (s *turnTest) decides(name string, m *Members) *Decision {
	s.Helper()
	d, err := s.turns.Decide(s.Context(), ns(name), m)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func TestNothingIsKeptOfAClusterThatIsGone(t *testing.T) {
	s := newTurns(t, 1, "a")
	turn := s.asks("a", true, true)
	s.turns.giveBack(ns("a"), turn) // a's roll-out is done, and the cache doesn't have that yet
	s.turns.Forget(ns("a"))
	if n := len(s.turns.ended) + len(s.turns.turns) + len(s.turns.waiting); n != 0 {
		t.Errorf("%d things are kept", n)
	}
}
