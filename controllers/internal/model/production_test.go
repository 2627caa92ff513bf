package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/test/summary"
)

// leastPairs of each verb must have been compared.
const leastPairs = 8

// The explorations have an executor of their own, because production's takes a thousand
// times as long. Here both are given the same states, which the explorations have reached,
// and the same steps: both see the same, do the same, and leave the same.
func TestTheModelSeesAndDoesWhatProductionDoes(t *testing.T) {
	t.Logf("chosen by -model.seed=%d", chosen())
	all := map[string]*exploration{}
	var mu sync.Mutex
	t.Run("explorations", func(t *testing.T) {
		for name, explore := range explored() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := explore()
				mu.Lock()
				defer mu.Unlock()
				all[name] = e
			})
		}
	})
	c := comparison{steps: map[verb]int{}, found: map[string][]string{}}
	var wait sync.WaitGroup
	for name, pairs := range choose(all) {
		wait.Go(func() { c.compare(t, name, &all[name].Options, pairs) })
	}
	wait.Wait()
	steps := 0
	for v := addClusterFinalizer; v < verbs; v++ {
		if steps += c.steps[v]; c.steps[v] < leastPairs {
			t.Errorf("%s: compared %d times", v, c.steps[v])
		}
		t.Logf("%4d times: %s", c.steps[v], v)
	}
	for _, what := range slices.Sorted(maps.Keys(c.found)) {
		t.Errorf("%s, %d times; in %s", what, len(c.found[what]), shortest(c.found[what]))
	}
	if err := summary.Add("model of the plan: %d steps and %d reconciles are production's (-model.seed=%d)", steps, c.reconciles, chosen()); err != nil {
		t.Error(err)
	}
}

// comparison of the model with production.
type comparison struct {
	sync.Mutex
	// steps by verb, and whole reconciles, that were compared.
	steps      map[verb]int
	reconciles int
	// found are the differences, by what differs.
	found map[string][]string
}

// compare the pairs of one exploration.
func (c *comparison) compare(t *testing.T, name string, o *Options, pairs []*pair) {
	w, ctx := newWorld(t, o), logf.IntoContext(t.Context(), logr.Discard())
	for _, p := range pairs {
		differences := w.compare(ctx, p)
		c.Lock()
		c.steps[p.step().verb]++
		if p.planned {
			c.reconciles++
		}
		for _, d := range differences {
			c.found[d.what] = append(c.found[d.what], fmt.Sprintf("%s\n%s\nafter this history:\n%s", name, d.text, p.history))
		}
		c.Unlock()
	}
}

func shortest(texts []string) string {
	return slices.MinFunc(texts, func(a, b string) int { return strings.Count(a, "\n") - strings.Count(b, "\n") })
}

// difference between the model and production.
type difference struct{ what, text string }

// compare what both see, what both do by the step, and what is left then; and the same of
// the whole reconcile, if the step begins one.
func (w *world) compare(ctx context.Context, p *pair) []difference {
	var found []difference
	differ := func(what, format string, args ...any) {
		found = append(found, difference{what, fmt.Sprintf(format, args...)})
	}
	s := w.serve(&p.before)
	seen, err := s.observe(ctx)
	if err != nil {
		differ("what is seen", "%v", err)
		return found
	}
	if diff := w.diffSeen(&p.before, seen, false); diff != "" {
		differ("what is seen: "+firstLine(diff), "-model +production:\n%s", diff)
	}
	if diff := w.diffLive(ctx, s, &p.before, seen); diff != "" {
		differ("what is read live: "+firstLine(diff), "-model +production:\n%s", diff)
	}
	if p.step().verb != noteServers {
		before, after := p.before, p.before
		w.model.do(&after, p.step())
		result, err := w.take(ctx, s, &before, seen)
		if result != p.outcome {
			differ(fmt.Sprintf("%s: %s, in production %s", p.step().verb, p.outcome, result), "%v", err)
		}
		if diff := w.diffLeft(ctx, s, &before, &after); diff != "" {
			differ(fmt.Sprintf("what is left after %s: %s", p.step().verb, firstLine(diff)), "-model +production:\n%s", diff)
		}
	}
	if p.planned {
		w.compareReconcile(ctx, &p.before, differ)
	}
	return found
}

func firstLine(diff string) string {
	for line := range strings.Lines(diff) {
		if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			return line
		}
	}
	return "?"
}

// compareReconcile from a state in which the operator plans.
func (w *world) compareReconcile(ctx context.Context, from *state, differ func(what, format string, args ...any)) {
	before := *from
	before.todo = steps{}
	if !w.model.options.Placing && before.seen.members != before.live.members {
		return // production has a list that doesn't follow at once
	}
	after := before
	done := w.model.reconcile(&after)
	s := w.serve(&before)
	_, err := s.reconciler().Reconcile(ctx, ctrl.Request{NamespacedName: clusterKey})
	if diff := w.diffLeft(ctx, s, &before, &after); diff != "" {
		differ("what a reconcile leaves: "+firstLine(diff), "%s: %v\n-model +production:\n%s", done, err, diff)
	}
}

// reconcile plans and takes all steps, without anything in between. It tells what it did.
func (m *model) reconcile(s *state) string {
	var did []string
	s.todo, _ = m.plan(s)
	for s.todo.n > 0 {
		a := s.todo.todo[0]
		result := m.act(s)
		s.sync()
		did = append(did, fmt.Sprintf("%s %d (%s)", a.verb, a.ordinal, result))
	}
	return strings.Join(did, ", ")
}

func (o outcome) String() string { return [...]string{"nothing to do", "done", "refused"}[o] }

// take lets production take the step.
func (w *world) take(ctx context.Context, s *server, before *state, seen *observe.State) (outcome, error) {
	a := before.todo.todo[0]
	w.asPlanned(before, seen, a)
	_, err := s.applier().Apply(ctx, seen, []plan.Action{w.model.action(before, a)})
	switch {
	case err == nil && s.writes > 0:
		return done, nil
	case err == nil:
		return nothing, nil
	case errors.Is(err, observe.ErrRefused), apierrors.IsConflict(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return refused, err
	}
	return outcomes, err
}

// asPlanned makes what was seen what the plan saw that has this step. The model takes the
// step by what the cache shows now; production keeps what it planned by.
func (w *world) asPlanned(before *state, seen *observe.State, a step) {
	switch {
	case a.verb == applyMembers && a.generation == 0:
		seen.StatefulSet = nil
	case a.verb == applyMembers && seen.StatefulSet == nil, a.verb == deleteMembers && seen.StatefulSet == nil:
		seen.StatefulSet = w.prepared.members[(a.argument+1)%(ordinals+1)].DeepCopy()
	case a.verb == writeList:
		seen.ServerList = nil
		if before.todo.was.exists {
			seen.ServerList = w.list(before.todo.was)
		}
	}
}

// What the states of the model don't have, and why that does no harm:
//
//   - A step goes by what the cache shows now; production keeps what it planned by. Its
//     writes to the Memcached are refused if that has changed since. A refusal drops the
//     rest of a plan, as the operator's death does, which is explored.
//   - The model takes an object for the same if it looks the same; production, by the
//     resource version. So production refuses more, as above.
//   - There is one Memcached and one StatefulSet, with one UID each. What is deleted is
//     named by its UID: apply/delete_test.go, test/integration/stale_test.go.
//   - Departures are counted, and members that are told to leave before the StatefulSet is
//     smaller leave together. Production has the time: if the operator dies in between,
//     the volume of one of them waits for that of the other, which is drained all the same.
//   - A member that isn't ready is lost at once, a failure is due at any time, and how
//     often there was one isn't counted: the model waits for nothing, so that it does at
//     any time what production does at some time.
//   - Where no items are placed, the clients' list follows the members at once.
//   - Of the status, only the number of servers is there. Drains in it are one more sign
//     of claims that the cache lacks: production then refuses to plan more often.
//   - All members have started once; labels are in place, and nobody else's objects are
//     there; pods have one container, and end at once; volumes have no sizes, and members
//     no shortage of memory: for these, see the tests of observe, plan, and
//     test/integration.
var sameWords = cmp.Options{
	cmpopts.EquateEmpty(),
	// A cache has no order.
	cmpopts.SortSlices(func(a, b plan.Claim) bool { return a.UID < b.UID }),
	cmpopts.SortSlices(func(a, b plan.Job) bool { return a.UID < b.UID }),
	cmpopts.SortSlices(func(a, b plan.Drainer) bool {
		return a.ClaimUID < b.ClaimUID || a.ClaimUID == b.ClaimUID && a.Target < b.Target
	}),
	cmpopts.SortSlices(func(a, b int32) bool { return a < b }),
	cmpopts.SortSlices(func(a, b types.UID) bool { return a < b }),
	// Messages, and names of pods, are for people. A Job is found by its name all the
	// same, or the step that deletes it would do nothing.
	cmpopts.IgnoreFields(plan.Job{}, "Name", "Message"),
	cmpopts.IgnoreFields(plan.Drainer{}, "Pod"),
	cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) }),
	// As above.
	cmpopts.IgnoreFields(plan.Attempts{}, "Failed"),
	cmpopts.IgnoreFields(plan.Cluster{}, "VolumeSize", "Memory"),
	cmpopts.IgnoreFields(plan.Observed{}, "Away"), // but see diff
}

// diffSeen compares what production observed with the words of the model.
func (w *world) diffSeen(s *state, seen *observe.State, left bool) string {
	v := s.sight()
	want, got := w.model.observed(&v), seen.Input()
	return w.diff(want, &got, left)
}

func (w *world) diff(want, got *plan.Observed, left bool) string {
	for _, o := range []*plan.Observed{want, got} {
		// Of the ring before, only the size has a say.
		o.Record.From = ring.Ring{Size: o.Record.From.Size}
		if left && !w.model.options.Placing {
			o.ListSize, o.Record = 0, ring.Record{} // the list follows at once
		}
	}
	for _, a := range got.Away {
		if slices.Contains(got.Ready, a.Ordinal) || a.Since.Add(time.Minute).After(got.Now) {
			return fmt.Sprintf("+ member %d is not lost: %v", a.Ordinal, a.Since)
		}
	}
	return cmp.Diff(want, got, sameWords)
}

// diffLive compares what is read live before steps that can't be undone.
func (w *world) diffLive(ctx context.Context, s *server, before *state, seen *observe.State) string {
	if seen.Cluster.DeletionTimestamp != nil {
		return "" // none of these steps is left
	}
	view, err := s.reader().View(ctx, seen)
	if err != nil {
		return "+ " + err.Error()
	}
	want := w.model.liveWords(before)
	// Who uses a volume is read by the one step that needs it.
	want.Pods, want.ClaimsWithDrainerPod, want.ClaimsWithDrainerAtWork = nil, nil, nil
	return w.diff(want, &view.Observed, false)
}

// diffLeft compares what production has left with what the model has: as an operator sees
// it whose cache has all of it, and to which claims the volumes are bound.
func (w *world) diffLeft(ctx context.Context, s *server, before, after *state) string {
	after.todo, after.lags, after.passes = steps{}, [kinds]bool{}, [kinds]bool{}
	after.sync()
	s.cache = s.Client
	seen, err := s.observe(ctx)
	if err != nil {
		return "+ " + err.Error()
	}
	v := after.sight()
	want, got := w.model.observed(&v), seen.Input()
	markedNow(before, after, want, &got)
	if diff := w.diff(want, &got, true); diff != "" {
		return diff
	}
	if exists := seen.Cluster.UID != ""; exists != after.live.cluster.exists {
		return fmt.Sprintf("+ the Memcached exists: %v", exists)
	}
	volumes := map[string]corev1.ObjectReference{}
	var list corev1.PersistentVolumeList
	if err := s.List(ctx, &list); err != nil {
		return "+ " + err.Error()
	}
	for i := range list.Items {
		volumes[list.Items[i].Name] = *list.Items[i].Spec.ClaimRef
	}
	return cmp.Diff(boundTo(after), volumes)
}

// markedNow makes the times of marks comparable that were written in this very step. The
// model counts departures, production has the time.
func markedNow(before, after *state, want, got *plan.Observed) {
	for i := range int8(ordinals) {
		for slot := range after.live.claims[i] {
			c := &after.live.claims[i][slot]
			if old := before.live.claimOf(i, c.generation); !c.exists || !c.released || old != nil && old.released {
				continue
			}
			if source := before.live.claimOf(i, c.of); source != nil && source.released {
				continue // its mark goes with the volume
			}
			for _, o := range []*plan.Observed{want, got} {
				at := slices.IndexFunc(o.Claims, func(other plan.Claim) bool { return other.UID == claimUIDs[i][c.generation] })
				if at >= 0 && (o == want || o.Claims[at].LeavingSince.Equal(justNow)) {
					o.Claims[at].LeavingSince = justNow
				}
			}
		}
	}
}

// How long one step takes the model, and how long it takes production.
func BenchmarkStep(b *testing.B) {
	o := explorations()["a deed, a fault, two drains at once"]
	o.Sample = newSample("benchmark")
	Explore(o)
	w, p := newWorld(b, &o), &o.Sample.drawn[pairKind{createDrain, done, true}].pairs[0]
	b.Run("by the model", func(b *testing.B) {
		for b.Loop() {
			after := p.before
			w.model.do(&after, p.step())
		}
	})
	b.Run("by production", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := w.serve(&p.before)
			seen, err := s.observe(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if result, err := w.take(b.Context(), s, &p.before, seen); result != done {
				b.Fatal(result, err)
			}
		}
	})
}
