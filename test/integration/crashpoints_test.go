package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/internal/operator"
	"example.com/memcached-operator/test/internal/stranger"
	"example.com/memcached-operator/test/invariants"
	"example.com/memcached-operator/test/summary"
	"example.com/memcached-operator/test/tier"
)

var (
	allFaults  = flag.Bool("crashpoints.all", false, "let every write of every scenario fail in every way; make test-all does")
	part       = flag.Int("crashpoints.part", 0, "one of the parts, from 1 to 6, of all failing writes; 0 is all of them")
	faultsSeed = flag.Int64("crashpoints.seed", 0, "chooses which writes fail how, if not all do; 0 takes the clock")
)

// parts is the number of parts of all failing writes.
const parts = 6

var (
	deaths   = []operator.Fault{operator.DieBefore, operator.DieAfter}
	failures = []operator.Fault{operator.Conflict, operator.ServerError, operator.AnswerLost}
)

var faultNames = map[operator.Fault]string{
	operator.DieBefore:   "the operator dies before",
	operator.DieAfter:    "the operator dies after",
	operator.Conflict:    "conflict at",
	operator.ServerError: "server error at",
	operator.AnswerLost:  "answer lost of",
}

// crashpoints counts the runs.
var crashpoints struct {
	scenarios, writes, faults, runs, unreached atomic.Int64
	// kinds counts, by verb and resource, the writes that had a fault, and the runs that
	// reached them.
	kinds sync.Map
}

// point is one write of an undisturbed run, with its fault.
type point struct {
	write string
	// nth is its number among the writes of its name, from 0.
	nth   int
	fault operator.Fault
}

func (p point) String() string {
	return fmt.Sprintf("%s %s, %d", faultNames[p.fault], p.write, p.nth+1)
}

// kind returns the write's verb and resource.
func (p point) kind() string { return strings.Join(strings.Fields(p.write)[:2], " ") }

// TestCrashPoints runs each scenario once to count the operator's writes. Then it runs with faults at the
// writes: the operator dies and another one starts, or the write is refused, or it is applied without an
// answer. Meanwhile strangers create, relabel and delete objects that look like the operator's. The objects at
// the end are always those of the undisturbed run, and every invariant holds after every change of an object.
//
// The first tier has a few scenarios, which have all kinds of writes. The operator dies at one write of each
// kind, and one write fails in each other way. The seed chooses these writes. A run has several of these faults,
// one after the other; in the second tier each has a run of its own.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	seed := *faultsSeed
	if seed == 0 {
		seed = time.Now().UnixNano() % 1000
	}
	t.Logf("-crashpoints.seed=%d -crashpoints.all=%v", seed, everyFault())
	t.Cleanup(func() {
		c := &crashpoints
		err := summary.Add("crash points: %d scenarios, %d writes, %d faults in %d runs (-crashpoints.seed=%d -crashpoints.all=%v); "+
			"%d writes were not reached",
			c.scenarios.Load(), c.writes.Load(), c.faults.Load(), c.runs.Load(), seed, everyFault(), c.unreached.Load())
		if err != nil {
			t.Error(err)
		}
		if c.faults.Load() == 0 {
			t.Error("there was no fault: -run has to name the undisturbed runs, too")
		}
		if unreached, faults := c.unreached.Load(), c.faults.Load(); unreached > max(1, faults/50) {
			t.Errorf("%d of %d faults did not come to their write: these show nothing", unreached, faults)
		}
		c.kinds.Range(func(kind, reached any) bool {
			if *part == 0 && reached.(*atomic.Int64).Load() == 0 {
				t.Errorf("no run came to %s", kind)
			}
			return true
		})
	})
	all := scenarios()
	if !everyFault() {
		maps.DeleteFunc(all, func(name string, _ scenario) bool { return !slices.Contains(firstScenarios, name) })
	}
	runs := make(map[string]*undisturbed, len(all))
	for name := range all {
		runs[name] = &undisturbed{}
	}
	t.Run("undisturbed", func(t *testing.T) {
		for name, s := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				*runs[name] = s.undisturbed(t)
			})
		}
	})
	if t.Failed() {
		return
	}
	inFirstScenarios(t, runs)
	chosen := choose(runs, seed)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		crashpoints.scenarios.Add(1)
		crashpoints.writes.Add(int64(len(runs[name].points)))
		var here []points
		for _, points := range inRuns(chosen[name]) {
			if *part == 0 || partOf(name+"/"+points.String()) == *part {
				here = append(here, points)
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, points := range here {
				crashpoints.faults.Add(int64(len(points)))
				t.Run(points.String(), func(t *testing.T) { s.disturbed(t, points, runs[name].end) })
			}
		})
	}
}

// partOf returns the part of a run. A status is not written equally often in each process, so runs are not numbered.
func partOf(run string) int {
	h := fnv.New32a()
	h.Write([]byte(run))
	return 1 + int(h.Sum32()%parts)
}

// undisturbed is a run without faults.
type undisturbed struct {
	points []point
	// end describes the objects at the end.
	end []string
}

// firstScenarios are those of the first tier. Together they have each kind of write.
var firstScenarios = []string{
	"scale-down, addresses stay", "scale-down, routers through all states", "scale-down, discovery",
	"rescue", "volumes grow, then the members", "deletion in the middle of a drain",
	"a member steps out for its eviction, and the budget goes and comes",
	"any StatefulSet, scaled down and up", "any StatefulSet, its StatefulSetDrain is deleted in mid-drain",
}

func everyFault() bool { return *allFaults || tier.All() }

// inFirstScenarios fails if one of all scenarios has a kind of write that those of the first tier don't
// have.
func inFirstScenarios(t *testing.T, runs map[string]*undisturbed) {
	t.Helper()
	have := map[string]bool{}
	for _, name := range firstScenarios {
		for _, p := range runs[name].points {
			have[p.kind()] = true
		}
	}
	for name, run := range runs {
		for _, p := range run.points {
			if !have[p.kind()] {
				t.Errorf("%s: no scenario of the first tier has a %s", name, p.kind())
			}
		}
	}
}

// choose returns the points of each scenario, each with a fault.
func choose(runs map[string]*undisturbed, seed int64) map[string][]point {
	chosen := map[string][]point{}
	give := func(name string, p point, fault operator.Fault) {
		p.fault = fault
		chosen[name] = append(chosen[name], p)
	}
	type write struct {
		scenario string
		point    point
	}
	kinds := map[string][]write{}
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		for _, p := range runs[name].points {
			if everyFault() {
				for _, fault := range slices.Concat(deaths, failures) {
					give(name, p, fault)
				}
			}
			// A status is not written equally often in each run.
			if p.nth == 0 || !isOfStatus(p.write) {
				kinds[p.kind()] = append(kinds[p.kind()], write{name, p})
			}
		}
	}
	if everyFault() {
		return chosen
	}
	draw := rand.New(rand.NewPCG(uint64(seed), 0))
	at := func(kind string, fault operator.Fault) {
		w := kinds[kind][draw.IntN(len(kinds[kind]))]
		give(w.scenario, w.point, fault)
	}
	all := slices.Sorted(maps.Keys(kinds))
	for _, kind := range all {
		at(kind, deaths[draw.IntN(len(deaths))])
	}
	for _, failure := range failures {
		at(all[draw.IntN(len(all))], failure)
	}
	return chosen
}

// points of one run, each a write of another name.
type points []point

func (p points) String() string {
	var all []string
	for _, point := range p {
		all = append(all, point.String())
	}
	return strings.Join(all, "; ")
}

// inRuns returns the points of each run.
func inRuns(all []point) []points {
	most := 4
	if everyFault() {
		most = 1
	}
	var runs []points
	for _, p := range all {
		at := slices.IndexFunc(runs, func(run points) bool {
			return len(run) < most && !slices.ContainsFunc(run, func(other point) bool { return other.write == p.write })
		})
		if at < 0 {
			at, runs = len(runs), append(runs, nil)
		}
		runs[at] = append(runs[at], p)
	}
	return runs
}

// isOfStatus tells whether the write is of the cluster's status.
func isOfStatus(write string) bool { return strings.Contains(write, "/status ") }

// pointsOf numbers the writes of each name.
func pointsOf(writes []string) []point {
	seen := map[string]int{}
	var points []point
	for _, write := range writes {
		points = append(points, point{write: write, nth: seen[write]})
		seen[write]++
	}
	return points
}

// scenario has the actions of people on a cluster, and the end of it.
type scenario struct {
	// begin makes the cluster; there is no fault yet.
	begin func(*world)
	// act has the actions of people. act waits for everything that must come first.
	act func(*world)
	// ended returns nil when the scenario has ended.
	ended func(*world) error
}

// undisturbed runs the scenario without faults.
func (s scenario) undisturbed(t *testing.T) undisturbed {
	w := newSerialNamespace(t)
	w.startOperator()
	from := s.prepare(w)
	first := w.claims()
	s.act(w)
	w.eventually("the end", func() error { return errors.Join(s.ended(w), w.volumesSettled()) })
	w.quiet()
	var writes []string
	for _, write := range w.journal.Writes()[from:] {
		if write.Status < 300 {
			writes = append(writes, nameOf(write))
		}
	}
	w.restsUnstuck()
	end := w.end(uids(first))
	t.Logf("%d writes:\n  %s\nthe end:\n  %s", len(writes), strings.Join(writes, "\n  "), strings.Join(end, "\n  "))
	return undisturbed{pointsOf(writes), end}
}

// prepare makes the cluster, and returns the number of writes that this took.
func (s scenario) prepare(w *world) int {
	s.begin(w)
	w.quiet()
	return len(w.journal.Writes())
}

// disturbed tries those points again that the operator did not come to. For example, details of a status are
// written together if they come quickly. So does a write that is repeated only if the cache was behind: the last try takes
// the repetition before it. Only few writes may stay unreached.
func (s scenario) disturbed(t *testing.T, all points, want []string) {
	t.Parallel()
	const tries = 3
	for _, p := range all {
		crashpoints.kinds.LoadOrStore(p.kind(), &atomic.Int64{})
	}
	for try := range tries {
		for i := range all {
			if try == tries-1 && all[i].nth > 0 {
				all[i].nth--
			}
		}
		n := crashpoints.runs.Add(1)
		reached := s.disturb(newSerialNamespace(t), all, want, uint64(n))
		if t.Failed() {
			return
		}
		for _, p := range reached {
			ofKind, _ := crashpoints.kinds.Load(p.kind())
			ofKind.(*atomic.Int64).Add(1)
		}
		all = slices.DeleteFunc(slices.Clone(all), func(p point) bool { return slices.Contains(reached, p) })
		if len(all) == 0 {
			return
		}
	}
	crashpoints.unreached.Add(int64(len(all)))
	t.Logf("in %d runs the operator never came to %s", tries, all)
}

// disturb runs the scenario with the faults, and returns the points that the operator came to.
func (s scenario) disturb(w *world, all points, want []string, strangersSeed uint64) (reached points) {
	w.interval = 200 * time.Millisecond // many tests wait at the same time
	w.startOperator()
	s.prepare(w)
	first := w.claims()
	hit := w.befall(all)
	successors := w.succeed()
	leave := w.strangersCome(strangersSeed)
	s.act(w)
	leave()
	w.eventually("the end of the undisturbed run", func() error {
		if err := s.ended(w); err != nil {
			return err
		}
		if diff := cmp.Diff(want, w.end(uids(first))); diff != "" {
			return fmt.Errorf("-undisturbed +disturbed:\n%s", diff)
		}
		return nil
	})
	w.journal.Inject(nil)
	reached = hit()
	if slices.ContainsFunc(reached, func(p point) bool { return slices.Contains(deaths, p.fault) }) {
		w.eventually("a successor", func() error {
			if successors.Load() == 0 {
				return errors.New("none")
			}
			return nil
		})
	}
	w.quiet()
	w.restsUnstuck()
	return reached
}

// strangersCome lets strangers create, relabel and delete objects, by the seed, until
// they are told to stop.
func (w *world) strangersCome(seed uint64) (leave func()) {
	ctx, cancel := context.WithCancel(w.Context())
	gone := make(chan struct{})
	w.Logf("strangers by seed %d", seed)
	them, draw := stranger.New(admin, w.namespace, name), rand.New(rand.NewPCG(seed, 0))
	go func() {
		defer close(gone)
		for ctx.Err() == nil {
			// A busy API server may be late with its answer.
			if _, err := them.Act(ctx, draw.Uint64()); err != nil && ctx.Err() == nil && !apierrors.IsTimeout(err) {
				w.Errorf("strangers by seed %d: %v", seed, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-gone
		if err := them.Leave(w.Context()); err != nil {
			w.Errorf("strangers by seed %d: %v", seed, err)
		}
	}
}

// volumesSettled returns nil when each volume has its claim.
func (w *world) volumesSettled() error {
	s := recorder.Now(w.namespace, name)
	if len(s.Volumes) != len(s.Claims) {
		return fmt.Errorf("%d volumes for %d claims", len(s.Volumes), len(s.Claims))
	}
	return nil
}

// random matches the random parts of names. Names of Jobs, and of claims whose volume was set aside, end with a
// hash of a UID. Names of Jobs' pods end with a random word after that, names of volumes with a UID, and names
// of routers with two words.
var random = regexp.MustCompile(`-(drain|aside|move)-[0-9a-f]{8}(?:-[a-z0-9]{5}$)?|(pvc)-[0-9a-f-]{36}|(router)-[a-z0-9]{1,10}-[a-z0-9]{5}$`)

// withoutRandom returns a name that is the same in each run.
func withoutRandom(name string) string { return random.ReplaceAllString(name, "-$1$2$3") }

func nameOf(w operator.Write) string { return withoutRandom(w.String()) }

// befall causes each fault once, and returns those that have happened.
func (w *world) befall(all points) (hit func() points) {
	var mu sync.Mutex
	seen := map[string]int{}
	var happened points
	w.journal.Inject(func(_ int, write operator.Write) operator.Fault {
		mu.Lock()
		defer mu.Unlock()
		name := nameOf(write)
		nth := seen[name]
		seen[name]++
		for _, p := range all {
			if p.write == name && nth >= p.nth && !slices.Contains(happened, p) {
				happened = append(happened, p)
				return p.fault
			}
		}
		return operator.NoFault
	})
	return func() points {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(happened)
	}
}

// succeed starts another operator whenever one has died. The result is how many it has started.
func (w *world) succeed() *atomic.Int32 {
	var successors atomic.Int32
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-w.running().Ended():
			}
			next, err := w.newOperator()
			if err != nil {
				w.Errorf("start another operator: %v", err)
				return
			}
			w.install(next)
			successors.Add(1)
		}
	}()
	w.Cleanup(func() { close(stop); <-stopped })
	return &successors
}

// end describes the objects that are left, without random names, times and versions, so that two runs can be
// compared.
func (w *world) end(first []types.UID) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, m := range w.clusters() {
		s := &m.Status
		add("Memcached size %d finalizers %v: size %d ready %d phase %s drains %d", *m.Spec.Size, m.Finalizers, s.Size, s.ReadySize, s.Phase, len(s.Drains))
		for _, c := range s.Conditions {
			add("condition %s=%s %s", c.Type, c.Status, c.Reason)
		}
		for _, d := range s.LastDrains {
			add("ended: claim %s: %s, %d found, %d added", withoutRandom(d.Claim), d.Result, d.Found, d.Added)
		}
		slices.Sort(out) // the member whose pod is gone first is drained first
	}
	for _, d := range w.stsDrains() {
		add("StatefulSetDrain finalizers %v: %d of %d ready, drains %d, left over %v", d.Finalizers, d.Status.ReadyReplicas, d.Status.Replicas, len(d.Status.Drains), d.Status.LeftOver)
		for _, c := range d.Status.Conditions {
			add("condition %s=%s %s", c.Type, c.Status, c.Reason)
		}
		for _, l := range d.Status.LastDrains {
			add("ended: member %d: %s, %s", l.Ordinal, l.Result, l.Message)
		}
		slices.Sort(out) // the member whose volume is set aside first is drained first
	}
	for _, s := range w.statefulSets() {
		add("StatefulSet of %d", *s.Spec.Replicas)
	}
	for _, p := range w.pods() {
		add("Pod %s %s", withoutRandom(p.Name), p.Status.Phase)
	}
	for _, c := range w.claims() {
		birth := "new"
		if slices.Contains(first, c.UID) {
			birth = "old"
		}
		add("claim %s, %s: finalizers %v deleting %v released %v receipt %v moved %q", withoutRandom(c.Name), birth, c.Finalizers,
			c.DeletionTimestamp != nil, c.Annotations[cachev1alpha1.AnnotationLeaving] != "", c.Annotations[cachev1alpha1.AnnotationReceipt] != "",
			c.Annotations[cachev1alpha1.AnnotationMoved])
	}
	for _, j := range w.jobs() {
		add("Job %s", withoutRandom(j.Name))
	}
	volumes := map[bool]int{}
	for _, v := range recorder.Now(w.namespace, name).Volumes {
		volumes[v.Retained]++
	}
	add("%d volumes, %d more retained", volumes[false], volumes[true])
	return out
}

// restsUnstuck checks the invariants of a cluster at rest: another reconcile changes nothing, and status
// mentions everything that waits, a Memcached's or a StatefulSetDrain's.
func (w *world) restsUnstuck() {
	w.Helper()
	w.within(100*time.Millisecond, "rest", func() error {
		before := recorder.Now(w.namespace, name)
		w.reconcile()
		if err := recorder.CaughtUp(w.Context(), w.namespace); err != nil {
			return err
		}
		after := recorder.Now(w.namespace, name)
		before.AtRest, after.AtRest = true, true
		var errs []error
		for _, violation := range slices.Concat(invariants.AtRestNothingIsWritten(before, after), invariants.NothingIsStuck(before, after)) {
			errs = append(errs, errors.New(violation))
		}
		return errors.Join(errs...)
	})
}
