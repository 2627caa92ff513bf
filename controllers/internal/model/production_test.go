package model

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
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

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/controllers/internal/action"
	pvc "example.com/memcached-operator/controllers/internal/claims"
	"example.com/memcached-operator/controllers/internal/claims/read"
	"example.com/memcached-operator/controllers/internal/observe"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/controllers/internal/ring"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

// leastPairs is how many pairs of each verb must have been compared. The few explorations of the
// first tier reach some verbs seldom.
var leastPairs = map[bool]int{false: 2, true: 4}[tier.All()]

// The explorations have their own executor, because production's takes a thousand times as long. Here both
// executors get the same states, which the explorations have reached, and the same steps. Both must see, do
// and leave the same.
func TestTheModelSeesAndDoesWhatProductionDoes(t *testing.T) {
	t.Logf("the steps are chosen by -model.seed=%d", chosen())
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
	c := comparison{steps: map[verb]int{}, failures: map[failure]int{}, found: map[string][]string{}}
	t.Run("production", func(t *testing.T) {
		for name, pairs := range choose(all) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c.compare(t, name, &all[name].Options, pairs)
			})
		}
	})
	c.report(t)
}

// comparison is the comparison of the model with production.
type comparison struct {
	sync.Mutex
	// steps counts the compared steps by verb, and the other fields the compared reconciles, and
	// those in which a write failed.
	steps      map[verb]int
	reconciles int
	failures   map[failure]int
	// found has the differences, by their kind.
	found map[string][]string
}

// report fails for each difference, and for each verb that was hardly compared.
func (c *comparison) report(t *testing.T) {
	steps, failures := 0, 0
	for v := addOwnerFinalizer; v < verbs; v++ {
		steps += c.steps[v]
		if t.Logf("%4d times: %s", c.steps[v], v); c.steps[v] < leastPairs {
			t.Errorf("%s: compared %d times, want %d or more", v, c.steps[v], leastPairs)
		}
	}
	for f := conflict; f < anyFailure; f++ {
		failures += c.failures[f]
		if t.Logf("%4d times: a write fails: %s", c.failures[f], f); c.failures[f] < leastPairs {
			t.Errorf("a write fails: %s: compared %d times, want %d or more", f, c.failures[f], leastPairs)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(c.found)) {
		t.Errorf("%s, %d times; in %s", what, len(c.found[what]), shortest(c.found[what]))
	}
	if err := summary.Add("model of the plan: %d steps, %d reconciles and %d with a failed write are as in production (-model.seed=%d)",
		steps, c.reconciles, failures, chosen()); err != nil {
		t.Error(err)
	}
}

// compare compares the pairs of one exploration.
func (c *comparison) compare(t *testing.T, name string, o *Options, pairs []*pair) {
	w, ctx := newWorld(t, o), logf.IntoContext(t.Context(), logr.Discard())
	w.random = newSample(name).random
	for _, p := range pairs {
		r := w.compare(ctx, p)
		c.Lock()
		if r.step {
			c.steps[p.step().verb]++
		}
		if r.reconcile {
			c.reconciles++
		}
		if r.status {
			c.steps[noteServers]++
		}
		if r.failure != 0 {
			c.failures[r.failure]++
		}
		for _, d := range r.found {
			c.found[d.what] = append(c.found[d.what], fmt.Sprintf("%s\n%s\nafter this history:\n%s", name, d.text, p.history))
		}
		c.Unlock()
	}
}

func shortest(texts []string) string {
	return slices.MinFunc(texts, func(a, b string) int { return strings.Count(a, "\n") - strings.Count(b, "\n") })
}

// difference is a difference between the model and production.
type difference struct{ what, text string }

// compared has the results of the comparison of a pair.
type compared struct {
	step, reconcile bool
	// status: the reconcile wrote the number of servers.
	status  bool
	failure failure
	found   []difference
}

func (c *compared) differ(what, format string, args ...any) {
	c.found = append(c.found, difference{what, fmt.Sprintf(format, args...)})
}

// compare compares what both see, do in the step, and leave. If the step is the first of a plan, compare also
// compares the whole reconcile, and a reconcile in which a write fails.
func (w *world) compare(ctx context.Context, p *pair) *compared {
	c := &compared{}
	s := w.serve(&p.before)
	seen, err := s.observe(ctx)
	if err != nil {
		c.differ("what is seen", "%v", err)
		return c
	}
	if diff := w.diffSeen(&p.before, seen); diff != "" {
		c.differ("what is seen: "+firstLine(diff), "-model +production:\n%s", diff)
	}
	if diff := w.diffLive(ctx, s, &p.before, seen); diff != "" {
		c.differ("what is read live: "+firstLine(diff), "-model +production:\n%s", diff)
	}
	if p.step().verb != noteServers {
		w.compareStep(ctx, p, s, seen, c)
	}
	// A list that follows the members at once is never stale.
	if p.planned && (w.model.options.Moving || p.before.seen.members == p.before.live.members) {
		writes := 0
		for _, t := range w.compareReconcile(ctx, p, 0, c) {
			if t.writes() {
				writes++
			}
			c.status = c.status || t.verb == noteServers
		}
		if c.reconcile = true; writes > 0 {
			c.failure = conflict + failure(w.random.IntN(int(anyFailure-conflict)))
			w.compareReconcile(ctx, p, 1+w.random.IntN(writes), c)
		}
	}
	return c
}

func (w *world) compareStep(ctx context.Context, p *pair, s *server, seen *observe.State, c *compared) {
	before, after := p.before, p.before
	w.model.do(&after, p.step())
	result, err := w.take(ctx, s, &before, seen)
	if result != p.outcome {
		c.differ(fmt.Sprintf("%s: %s, in production %s", p.step().verb, p.outcome, result), "%v", err)
	}
	if diff := w.diffLeft(ctx, s, &before, &after); diff != "" {
		c.differ(fmt.Sprintf("what is left after %s: %s", p.step().verb, firstLine(diff)), "-model +production:\n%s", diff)
	}
	c.step = true
}

func firstLine(diff string) string {
	for line := range strings.Lines(diff) {
		if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+") {
			return line
		}
	}
	return "?"
}

// compareReconcile compares a reconcile from a state in which the operator plans. If failAt is not 0, the
// write with this number fails. compareReconcile returns the model's steps.
func (w *world) compareReconcile(ctx context.Context, p *pair, failAt int, c *compared) []taken {
	before := p.before
	before.todo = steps{}
	after := before
	did := w.model.reconcile(&after, failAt, c.failure)
	s := w.serve(&before)
	s.failAt, s.failure, s.listFollows = failAt, c.failure, !w.model.options.Moving
	_, err := s.reconciler().Reconcile(ctx, ctrl.Request{NamespacedName: clusterKey})
	if s.unlocked {
		c.differ("a patch has no lock", "%v", did)
	}
	if failAt > s.attempts {
		c.differ("a reconcile has fewer writes than the model's", "%v: %d and %v", did, s.attempts, err)
	}
	if diff := w.diffLeft(ctx, s, &before, &after); diff != "" {
		what := "what a reconcile leaves"
		if failAt > 0 {
			what = fmt.Sprintf("what a reconcile leaves whose write fails (%s)", c.failure)
		}
		c.differ(what+": "+firstLine(diff), "%v: %v\n-model +production:\n%s", did, err, diff)
	}
	return did
}

func (o outcome) String() string { return [...]string{"nothing to do", "done", "refused"}[o] }

// take lets production take the step.
func (w *world) take(ctx context.Context, s *server, before *state, seen *observe.State) (outcome, error) {
	a := before.todo.todo[0]
	w.asPlanned(before, seen, a)
	_, err := s.applier().Apply(ctx, seen.Cluster, &seen.Objects, []action.Action{w.model.action(before, a)})
	switch {
	case err == nil && s.writes > 0:
		return done, nil
	case err == nil:
		return nothing, nil
	case errors.Is(err, read.ErrRefused), apierrors.IsConflict(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return refused, err
	}
	return outcomes, err
}

// asPlanned sets the observed state to that of the plan with this step.
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

// sameWords compares the input of a plan. This is the full list of how the model differs from
// production by design.
//
//   - A step uses what the cache shows now; production keeps what it planned from
//     (asPlanned). So production refuses a write to a Memcached that has changed since. A
//     refusal drops the rest of the plan, as the operator's death does, which is explored.
//   - The model takes an object for unchanged if it looks the same; production compares
//     resource versions. So production refuses more, as above.
//   - There is one Memcached and one StatefulSet, with one UID each. That production deletes
//     exactly the object it has seen: apply/delete_test.go, test/integration/stale_test.go.
//   - The model counts departures; production has their time (markedNow). Members that are
//     marked before the StatefulSet shrinks leave together in the model. If the operator
//     dies in between, production gives them two times: then one volume waits for the
//     other, and both are drained.
//   - A member that isn't ready is lost at once, a failed Job may be due at any time, and
//     the number of its failures is always 1: the model doesn't wait, so it does at any
//     time what production does at some time.
//   - If no items are moved, the clients' list follows the members at once.
//   - Of status, the model only has the number of servers. Production also looks at the
//     drains in it for claims that the cache lacks: it then refuses to plan more often.
//   - All members have started once, labels are in place, no other owner's objects exist, pods
//     have one container and end at once, volumes have no sizes, and members don't lack
//     memory. For these see the tests of observe and plan, and test/integration.
//   - In the model a step's live check and its write are one. In production another write to
//     the same object can come between them, and must be a conflict (failures_test.go). One
//     to another object can, too: neither test sees that.
var sameWords = cmp.Options{
	cmpopts.EquateEmpty(),
	// Lists from a cache have no order.
	cmpopts.SortSlices(func(a, b pvc.Claim) bool { return a.UID < b.UID }),
	cmpopts.SortSlices(func(a, b pvc.Job) bool { return a.UID < b.UID }),
	cmpopts.SortSlices(func(a, b pvc.Drainer) bool {
		return a.ClaimUID < b.ClaimUID || a.ClaimUID == b.ClaimUID && a.Target < b.Target
	}),
	cmpopts.SortSlices(func(a, b int32) bool { return a < b }),
	cmpopts.SortSlices(func(a, b types.UID) bool { return a < b }),
	// Messages and names of pods are for people. A Job's name is compared by the step that
	// deletes it.
	cmpopts.IgnoreFields(pvc.Job{}, "Name", "Message"),
	cmpopts.IgnoreFields(pvc.Drainer{}, "Pod"),
	cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) }),
	// As above.
	cmpopts.IgnoreFields(action.Attempts{}, "Failed"),
	cmpopts.IgnoreFields(plan.Cluster{}, "VolumeSize", "VolumeSizeGiven", "Memory"),
	cmpopts.IgnoreFields(plan.Observed{}, "Away"), // but see diff
	// The model's pods are not told of the list, because only its write before matters.
	cmpopts.IgnoreFields(plan.Observed{}, "MemberPods", "RouterPods"),
	cmpopts.IgnoreFields(plan.Observed{}, "Stuck"), // only roll-outs look at it
}

// diffSeen compares the state that production observed with the model's.
func (w *world) diffSeen(s *state, seen *observe.State) string {
	v := s.sight()
	want, got := w.model.observed(&v), seen.Input()
	return w.diff(want, &got, false)
}

func (w *world) diff(want, got *plan.Observed, left bool) string {
	for _, o := range []*plan.Observed{want, got} {
		// Only the size of the previous ring is used.
		for _, r := range []*ring.Ring{&o.Cluster.Ring, &o.Record.Ring} {
			if r.Client == noClient {
				r.Client = "" // the model's name of it
			}
		}
		o.Record.From = ring.Ring{Size: o.Record.From.Size}
		if left && !w.model.options.Moving {
			o.ListSize, o.Record = 0, ring.Record{} // the list follows at once
		}
	}
	for _, a := range got.Away {
		if slices.Contains(got.Ready, a.Ordinal) || a.Since.Add(time.Minute).After(got.Now) {
			return fmt.Sprintf("+ member %d is not lost: %v", a.Ordinal, a.Since)
		}
	}
	if reflect.DeepEqual(ordered(want), ordered(got)) {
		return "" // most are equal, and this takes a tenth of the time
	}
	return cmp.Diff(want, got, sameWords)
}

var errAny = errors.New("any error")

// ordered sorts the input that sameWords compares, so that equal inputs are deeply equal.
func ordered(o *plan.Observed) plan.Observed {
	c := *o
	c.Claims, c.Jobs, c.Moves, c.Drainers, c.Away = cloned(o.Claims), cloned(o.Jobs), cloned(o.Moves), cloned(o.Drainers), nil
	c.MemberPods, c.RouterPods = nil, nil
	c.Pods, c.Ready = sorted(o.Pods), sorted(o.Ready)
	c.ClaimsWithDrainerPod, c.ClaimsWithDrainerAtWork = sorted(o.ClaimsWithDrainerPod), sorted(o.ClaimsWithDrainerAtWork)
	c.Cluster.VolumeSize, c.Cluster.Memory, c.Now = 0, 0, c.Now.UTC()
	for i := range c.Claims {
		c.Claims[i].LeavingSince, c.Claims[i].Attempts.Failed = c.Claims[i].LeavingSince.UTC(), 0
	}
	for _, jobs := range [][]pvc.Job{c.Jobs, c.Moves} {
		for i := range jobs {
			j := &jobs[i]
			if j.Name, j.Message, j.Ended = "", "", j.Ended.UTC(); j.ReceiptErr != nil {
				j.ReceiptErr = errAny
			}
		}
	}
	for i := range c.Drainers {
		c.Drainers[i].Pod = ""
	}
	slices.SortFunc(c.Claims, func(a, b pvc.Claim) int { return strings.Compare(string(a.UID), string(b.UID)) })
	byUID := func(a, b pvc.Job) int { return strings.Compare(string(a.UID), string(b.UID)) }
	slices.SortFunc(c.Jobs, byUID)
	slices.SortFunc(c.Moves, byUID)
	slices.SortFunc(c.Drainers, func(a, b pvc.Drainer) int {
		return strings.Compare(string(a.ClaimUID)+" "+a.Target, string(b.ClaimUID)+" "+b.Target)
	})
	return c
}

// cloned returns a copy; nil of an empty slice.
func cloned[T any](all []T) []T { return append([]T(nil), all...) }

func sorted[T stdcmp.Ordered](all []T) []T {
	c := cloned(all)
	slices.Sort(c)
	return c
}

// diffLive compares the state that is read live before steps that can't be undone.
func (w *world) diffLive(ctx context.Context, s *server, before *state, seen *observe.State) string {
	if seen.Cluster.DeletionTimestamp != nil {
		return "" // then a plan has none of these steps
	}
	view, err := s.reader().View(ctx, seen.Cluster)
	if err != nil {
		return "+ " + err.Error()
	}
	want := w.model.liveWords(before)
	// Only the step that needs it reads which pods use a volume.
	want.Pods, want.ClaimsWithDrainerPod, want.ClaimsWithDrainerAtWork = nil, nil, nil
	return w.diff(want, &view.Observed, false)
}

// diffLeft compares the states that production and the model leave: the observed state with
// up-to-date caches, and which claims the volumes are bound to.
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

// markedNow makes new marks comparable: the model counts departures, production has the time, and
// a higher number for a member that is marked later, although it leaves with the others.
func markedNow(before, after *state, want, got *plan.Observed) {
	for i := range int8(ordinals) {
		for slot := range after.live.claims[i] {
			c := &after.live.claims[i][slot]
			if old := before.live.claimOf(i, c.generation); !c.exists || !c.leaving || old != nil && old.leaving {
				continue
			}
			if source := before.live.claimOf(i, c.of); source != nil && source.leaving {
				continue // the claim has the mark of the claim whose volume was set aside
			}
			for _, o := range []*plan.Observed{want, got} {
				at := slices.IndexFunc(o.Claims, func(other pvc.Claim) bool { return other.UID == claimUIDs[i][c.generation] })
				if at >= 0 && (o == want || o.Claims[at].LeavingSince.Equal(justNow)) {
					o.Claims[at].LeavingSince = justNow
				}
				if at >= 0 && o.Claims[at].Left > c.number() {
					o.Claims[at].Left = c.number()
				}
			}
		}
	}
}

// BenchmarkStep measures how long a step takes in the model and in production.
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

// noClient is the ring of a spec that names no client.
var noClient = (&cachev1alpha1.RoutingSpec{}).RingClient()
