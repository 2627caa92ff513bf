package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cachev1alpha1 "example.com/memcached-operator/api/v1alpha1"
	"example.com/memcached-operator/test/explore"
)

// Options has the beginning and the bounds of an exploration.
type Options struct {
	// templates are the StatefulSet's volumeClaimTemplates.
	templates []string
	policy    cachev1alpha1.DrainPolicy
	// whenScaled, whenDeleted: Kubernetes deletes claims. ordered: podManagementPolicy is OrderedReady.
	whenScaled, whenDeleted, ordered bool
	// noVolumes: the operator has no right to volumes.
	noVolumes bool
	// image is the drainer's at the beginning. badTemplates: a person may choose one that does not exist.
	image        string
	badTemplates bool
	// policies: people change the policy.
	policies bool
	// unprotected: the StatefulSetDrain is new.
	unprotected bool
	// least is the smallest number of members that people want. onlyScale: people only scale. onlyRemakes: they scale, delete
	// the StatefulSetDrain, make it again, and retry. onlyBack: they scale, bring claims back from a backup, and retry.
	least                            int32
	onlyScale, onlyRemakes, onlyBack bool
	// skips: with onlyBack, they skip and delete claims, too.
	skips bool
	// budget is how many deeds, faults and races one history has at most.
	budget
}

// noImage is the image that no node can pull.
const noImage = "none"

// template is a spec.template.spec.
func template(image string) string {
	return fmt.Sprintf(`{"containers":[{"image":%q,"name":%q}]}`, image, container)
}

type model struct {
	Options
	graph  *explore.Graph[string]
	events int
}

// Result is the result of an exploration.
type Result struct {
	states, events, rests int
	broken                map[string]string
}

type reached struct {
	id    int32
	state *state
}

// Explore explores all states, breadth first.
func Explore(o Options) Result {
	m := &model{Options: o, graph: explore.New[string]()}
	first := m.first()
	m.graph.Know(first.hash(), explore.Step[string]{From: -1, Move: "the beginning"})
	for frontier := []reached{{0, first}}; len(frontier) > 0; {
		var next []reached
		for _, at := range frontier {
			next = m.expand(at, next)
		}
		frontier = next
	}
	m.graph.CheckProgress()
	return Result{m.graph.States(), m.events, m.graph.Rests(), m.graph.Broken}
}

// first has a StatefulSet with two members that run.
func (m *model) first() *state {
	s := &state{objects: map[string]client.Object{}, volumes: map[string]volume{}, budget: m.budget, awake: true}
	s.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Finalizers: []string{"kubernetes"}}})
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "s01", CreationTimestamp: longAgo}}
	set.Spec.Replicas, set.Spec.Selector = ptr.To(mostMembers), &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	if m.ordered {
		set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	for _, t := range m.templates {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: t}})
	}
	s.put(set)
	s.put(m.newDrain("d01"))
	for i := range mostMembers {
		m.makeMember(s, i)
		s.start(s.member(i))
	}
	for _, c := range s.claims() { // later ones are not older than what was deleted before
		change(s, c, func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = longAgo })
	}
	m.settle(s)
	for !m.unprotected {
		r := m.reconcile(s, fault{at: -1}, func(before, after *state) { m.check(before, after) })
		if s = r.to; r.writes == 0 {
			break
		}
	}
	return s
}

func (m *model) newDrain(uid types.UID) *cachev1alpha1.StatefulSetDrain {
	drain := &cachev1alpha1.StatefulSetDrain{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, CreationTimestamp: longAgo}}
	drain.Spec.StatefulSetName, drain.Spec.Policy, drain.Spec.Receipt = name, m.policy, "receipt.found == receipt.moved"
	drain.Spec.Template.Spec.Raw = []byte(template(cmp.Or(m.image, "drainer")))
	return drain
}

// class tells events that happen sooner or later by themselves from those that need not happen.
type class bool

const (
	progress class = true
	mishap   class = false
)

// expand takes each event out of one state, checks it, and keeps the new states.
func (m *model) expand(at reached, next []reached) []reached {
	var outcomes []outcome
	for _, e := range m.kubernetes(at.state) {
		outcomes = append(outcomes, m.happens(at, e, at.state.budget, progress))
	}
	kubernetes := len(outcomes)
	if b := at.state.budget; b.deeds > 0 {
		b.deeds--
		for _, e := range m.people(at.state) {
			outcomes = append(outcomes, m.happens(at, e, b, mishap))
		}
	}
	if b := at.state.budget; b.faults > 0 {
		b.faults--
		for _, e := range m.faults(at.state) {
			outcomes = append(outcomes, m.happens(at, e, b, mishap))
		}
	}
	r := m.operate(at, fault{at: -1}, "the operator", at.state.budget, progress, &outcomes)
	m.interrupt(at, r, &outcomes)
	if kubernetes == 0 && r.writes == 0 {
		m.graph.Rest(at.id)
		for _, wrong := range m.atRest(at.state, r) {
			promise, _, _ := strings.Cut(wrong, ":")
			status := ""
			if r.status != nil {
				status = says(r.status)
			}
			m.graph.Break("at rest: "+promise, wrong+"\n"+status+at.state.text(), m.graph.How(at.id))
		}
	}
	for _, o := range outcomes {
		id, isNew := m.graph.Know(o.to.hash(), explore.Step[string]{From: at.id, Move: o.what})
		if isNew {
			next = append(next, reached{id, o.to})
		}
		if o.class == progress {
			m.graph.Progress(at.id, id)
		}
	}
	m.events += len(outcomes)
	return next
}

// outcome is an event and the state that it leads to.
type outcome struct {
	what  string
	to    *state
	class class
}

func (m *model) happens(at reached, e event, left budget, is class) outcome {
	to := at.state.clone()
	e.do(to)
	to.budget = left
	m.settle(to)
	m.judge(at, e.what, at.state, to)
	return outcome{e.what, to, is}
}

// judge notes the rules that an event has broken.
func (m *model) judge(at reached, what string, before, after *state) {
	for _, wrong := range m.check(before, after) {
		promise, _, _ := strings.Cut(wrong, ":")
		m.graph.Break(promise, wrong, explore.Step[string]{From: at.id, Move: what})
	}
}

// operate adds a reconcile.
func (m *model) operate(at reached, f fault, what string, left budget, is class, all *[]outcome) *reconciled {
	var r *reconciled
	broken := map[string]bool{}
	r = m.reconcile(at.state, f, func(before, after *state) {
		for _, wrong := range m.check(before, after) {
			broken[wrong] = true
		}
	})
	if f.at < 0 {
		r.wrong = append(r.wrong, m.settled(at.state, r)...)
	}
	for _, wrong := range r.wrong {
		broken[wrong] = true
	}
	what = fmt.Sprintf("%s: %s", what, strings.Join(r.steps, "; "))
	if r.err != nil {
		what += fmt.Sprintf(" (%v)", r.err)
	}
	for wrong := range broken {
		promise, _, _ := strings.Cut(wrong, ":")
		m.graph.Break(promise, wrong, explore.Step[string]{From: at.id, Move: what})
	}
	r.to.budget = left
	m.settle(r.to)
	if r.writes > 0 || f.at >= 0 {
		*all = append(*all, outcome{what, r.to, is})
	}
	return r
}

// interrupt adds reconciles in which a write fails, or that end at a write, or in whose middle something else
// happens.
func (m *model) interrupt(at reached, r *reconciled, all *[]outcome) {
	if left := at.state.budget; left.faults > 0 {
		left.faults--
		for n := range r.writes {
			for f := denied; f < failures; f++ {
				m.operate(at, fault{at: n + 1, failure: f}, fmt.Sprintf("the operator, whose write %d %s", n+1, f), left, mishap, all)
			}
		}
	}
	if at.state.budget.races == 0 || r.writes == 0 {
		return
	}
	type other struct {
		event
		left budget
	}
	var others []other
	left := at.state.budget
	left.races--
	for _, e := range m.kubernetes(at.state) {
		others = append(others, other{e, left})
	}
	if left.deeds > 0 {
		left.deeds--
		for _, e := range m.people(at.state) {
			others = append(others, other{e, left})
		}
	}
	for n := range r.writes + 1 {
		for _, o := range others {
			m.operate(at, fault{at: n, event: m.byName(o.what), after: n > 0}, fmt.Sprintf("the operator, and after its write %d %s", n, o.what), o.left, mishap, all)
			if n > 0 {
				m.operate(at, fault{at: n, event: m.byName(o.what)}, fmt.Sprintf("the operator, and right before its write %d %s", n, o.what), o.left, mishap, all)
			}
		}
	}
}

// byName is the event of this name in another state, if it is still possible there.
func (m *model) byName(what string) func(*state) {
	return func(s *state) {
		for _, e := range slices.Concat(m.kubernetes(s), m.people(s)) {
			if e.what == what {
				e.do(s)
				return
			}
		}
	}
}
