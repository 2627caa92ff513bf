package installation

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
)

// world is a Memcached and the installations of the operator that watch it. Each installation sees
// the Memcached late, like a cache, and its write fails if it has not seen the present version.
type world struct {
	t       *testing.T
	now     time.Duration
	cluster cachev1alpha1.Memcached
	version int
	// writes counts writes, changes how often the Memcached got another operator.
	writes, changes int
	of              []*observer
}

type observer struct {
	name    string
	atWork  bool
	cached  cachev1alpha1.Memcached
	version int
	says    string
	since   time.Duration
	// idle is for how many turns the installation has not seen the present Memcached.
	idle int
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t}
	for _, name := range names {
		w.of = append(w.of, &observer{name: name, atWork: true})
	}
	return w
}

func (w *world) operator() string { return w.cluster.Annotations[cachev1alpha1.AnnotationOperator] }

// sees brings the present Memcached into the installation's cache.
func (w *world) sees(o *observer) { w.cluster.DeepCopyInto(&o.cached); o.version = w.version }

// reconciles runs one reconcile, and tells whether the installation manages the Memcached.
func (w *world) reconciles(o *observer) bool {
	a := o.cached.Annotations
	if says := a[cachev1alpha1.AnnotationOperator] + "|" + a[cachev1alpha1.AnnotationOtherOperator]; says != o.says {
		o.says, o.since = says, w.now
	}
	step, wait := Next(o.name, See(&o.cached, w.now-o.since))
	if wait < 0 || !step.Manages() && step == LeaveAlone && wait == 0 {
		w.t.Fatalf("%s: step %d, and looks again after %s", o.name, step, wait)
	}
	after := o.cached.DeepCopy()
	if !Write(o.name, step, after) {
		return step.Manages()
	}
	if o.version != w.version {
		return false // a conflict
	}
	before := w.operator()
	w.cluster, w.version, w.writes = *after, w.version+1, w.writes+1
	if w.operator() != before {
		w.changes++
	}
	return step.Manages() || step == TakeOver
}

// run runs the installations for this time: each running installation reconciles in about every
// second turn, in any order. Its cache is sometimes stale, but is up to date in at least one of
// four turns.
func (w *world) run(r *rand.Rand, d time.Duration) {
	const tick = 5 * time.Second
	for end := w.now + d; w.now < end; w.now += tick {
		for _, i := range r.Perm(len(w.of)) {
			o := w.of[i]
			late := o.idle >= 3
			if !o.atWork || !late && r.IntN(2) == 0 {
				o.idle++
				continue
			}
			if o.idle++; late || r.IntN(5) > 0 {
				w.sees(o)
				o.idle = 0
			}
			w.reconciles(o)
		}
	}
}

func TestOneOfSeveralInstallationsManagesAMemcachedUntilItEnds(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // for chance, not for secrets
		w := newWorld(t, "a/lease", "b/lease", "c/lease")
		w.run(r, time.Hour)
		first := w.operator()
		if first == "" || w.changes != 1 {
			t.Fatalf("seed %d: %q manages it, after %d changes", seed, first, w.changes)
		}
		if limit := 3 * 60; w.writes > limit {
			t.Fatalf("seed %d: %d writes in an hour", seed, w.writes)
		}
		for _, o := range w.of { // the managing installation is uninstalled
			o.atWork = o.name != first
		}
		w.run(r, ForgetTime+AskAgainTime+2*AnswerTime)
		second := w.operator()
		if second == first || w.changes != 2 {
			t.Fatalf("seed %d: %q manages it, after %d changes", seed, second, w.changes)
		}
		w.run(r, time.Hour)
		for _, o := range w.of { // the first installation comes back
			o.atWork = true
		}
		w.run(r, time.Hour)
		if w.changes != 2 {
			t.Fatalf("seed %d: %d changes", seed, w.changes)
		}
		for _, o := range w.of { // the others are limited to other namespaces
			o.atWork = o.name == second
		}
		w.run(r, ForgetTime+3*time.Minute)
		if q := w.cluster.Annotations[cachev1alpha1.AnnotationOtherOperator]; q != "" {
			t.Fatalf("seed %d: the question %s stays", seed, q)
		}
		writes := w.writes
		w.run(r, time.Hour)
		if w.writes != writes {
			t.Fatalf("seed %d: %d writes at rest", seed, w.writes-writes)
		}
	}
}

// Two installations that reconcile at the same time, with the same cached Memcached, never both
// begin.
func TestOnlyOneOfTwoInstallationsClaimsANewMemcached(t *testing.T) {
	w := newWorld(t, "a/lease", "b/lease")
	for _, o := range w.of {
		w.sees(o)
	}
	first, second := w.reconciles(w.of[0]), w.reconciles(w.of[1])
	if !first || second {
		t.Errorf("the first one manages it: %v, the second one: %v", first, second)
	}
}

func TestAnnotationsAboutInstallationsAreBounded(t *testing.T) {
	for what, text := range map[string]string{
		"nothing": "", "no JSON": "a/lease", "no name": `{"number":1}`, "no number": `{"by":"a/lease"}`, "a negative number": `{"by":"a","number":-1}`,
		"a number without a next one": `{"by":"a","number":9223372036854775807}`, "a line break": `{"by":"a\nb","number":1}`,
		"a long name": `{"by":"` + strings.Repeat("a", 300) + `","number":1}`, "a long text": `{"by":"a","number":1` + strings.Repeat(" ", 600) + `}`,
	} {
		cluster := &cachev1alpha1.Memcached{}
		cluster.Annotations = map[string]string{cachev1alpha1.AnnotationOperator: strings.Repeat("x", 300), cachev1alpha1.AnnotationOtherOperator: text}
		if seen := See(cluster, 0); seen.Question != nil || seen.Operator != "" {
			t.Errorf("%s: %v", what, seen)
		}
	}
}
