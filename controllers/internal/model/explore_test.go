package model

import (
	"hash/maphash"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/test/explore"
	"example.com/memcached-operator/test/invariants"
)

// Options has the beginning and the bounds of an exploration.
type Options struct {
	// Cluster has the policy, the parallelism, and whether the claims are deleted with
	// the Memcached.
	Cluster plan.Cluster
	// Size is the cluster's present and wanted size at the beginning.
	Size int8
	// New: only the Memcached exists at the beginning.
	New bool
	// OnlyScale: people only change the size and where clients look.
	OnlyScale bool
	// Deletes: with OnlyScale, they also delete a member's claim and pod.
	Deletes bool
	// Client is the spec's client at the beginning; 0 for the consistent one.
	Client int8
	// Moving: items are moved, one item is followed, and people change where clients
	// look.
	Moving bool
	// Largest is the largest size that people want; 0 for the largest that the model has room for.
	Largest int8
	// Deeds, Faults and Lags are how many actions of people, faults and lagging caches one history
	// has at most.
	Deeds, Faults, Lags int8
	// Deaths is how many nodes die at most.
	Deaths int8
	// Sample gets a sample of the operator's steps; nil for none.
	Sample *sample
}

// Result is the result of an exploration.
type Result struct {
	// States, Events and Rests count the reached states, the events between them, and the states at
	// rest.
	States, Events, Rests int
	// Broken has, by promise, a shortest history that breaks it.
	Broken map[string]string
}

type model struct {
	options Options
	plans   map[sight]steps
	// names has the rings by their names.
	names   map[target]string
	targets map[string]target
	// moved has the receipts of moves.
	moved map[drainer]*contract.Receipt
	// translated has the receipts as the plan knows them.
	translated map[*contract.Receipt]*action.Receipt
	seed       maphash.Seed

	graph  *explore.Graph[event]
	result Result
	// at is the state whose events are being looked for.
	at int32
}

// parent is how a state was reached first.
type parent = explore.Step[event]

// history is a list of events, the last one first.
type history = explore.History[event]

type reached struct {
	id    int32
	state state
}

func newModel(o Options) *model {
	return &model{
		options: o, plans: map[sight]steps{}, names: map[target]string{}, targets: map[string]target{},
		moved: map[drainer]*contract.Receipt{}, translated: map[*contract.Receipt]*action.Receipt{}, seed: maphash.MakeSeed(), graph: explore.New[event](),
	}
}

// Explore explores all states, breadth first.
func Explore(o Options) Result {
	m := newModel(o)
	first := m.first()
	m.know(&first, parent{From: -1})
	frontier, next := []reached{{0, first}}, []reached(nil)
	var moves []expanded
	for len(frontier) > 0 {
		next = next[:0]
		for i := range frontier {
			m.at = frontier[i].id
			moves = m.expand(&frontier[i].state, moves)
			next = m.follow(&frontier[i], moves, next)
		}
		frontier, next = next, frontier // states are large: their room is used again
	}
	m.graph.CheckProgress()
	o.Sample.tell(m)
	m.result.States, m.result.Rests, m.result.Broken = m.graph.States(), m.graph.Rests(), m.graph.Broken
	return m.result
}

// first is the cluster at the beginning.
func (m *model) first() state {
	s := state{budget: budget{m.options.Deeds, m.options.Faults, m.options.Lags, m.options.Deaths}}
	s.live.cluster = cluster{exists: true, finalizer: true, size: m.options.Size}
	if m.options.New {
		s.live.cluster.finalizer = false
	} else {
		s.live.members = statefulSet{true, m.options.Size}
		for i := range m.options.Size {
			s.makeClaim(i)
			s.provision(i)
			s.live.pods.members[i] = pod{running, s.live.claims[i][0].generation}
		}
	}
	m.firstList(&s)
	s.sync()
	p := m.picture(&s)
	p.Remember(nil)
	s.remember(p)
	return s
}

// know numbers a state, and tells whether it is new.
func (m *model) know(s *state, how parent) (id int32, isNew bool) {
	return m.graph.Know(maphash.Comparable(m.seed, *s), how)
}

// follow takes each event out of one state, checks it, and keeps the new states.
func (m *model) follow(from *reached, moves []expanded, next []reached) []reached {
	before := m.picture(&from.state)
	resting := true
	for i := range moves {
		to := &moves[i].to
		after := m.picture(to)
		after.Remember(before)
		to.remember(after)
		how := parent{From: from.id, Move: moves[i].move}
		for _, v := range invariants.Check(before, after) {
			m.graph.Break(v.Invariant.Name, v.String(), how)
		}
		for _, wrong := range m.misplacing(&from.state, to) {
			m.graph.Break(wrong, wrong, how)
		}
		id, isNew := m.know(to, how)
		if isNew {
			next = append(next, reached{id, *to})
		}
		if moves[i].class == progress {
			resting = false
		}
		if moves[i].class == progress || moves[i].class == hope {
			m.graph.Progress(from.id, id)
		}
	}
	m.result.Events += len(moves)
	if resting {
		m.graph.Rest(from.id)
		for _, wrong := range m.atRest(&from.state) {
			m.graph.Break("at rest: "+wrong, wrong, m.graph.How(from.id))
		}
	}
	return next
}
