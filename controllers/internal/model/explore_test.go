package model

import (
	"fmt"
	"hash/maphash"
	"strings"

	"example.com/memcached-operator/controllers/internal/action"
	"example.com/memcached-operator/controllers/internal/plan"
	"example.com/memcached-operator/drainer/contract"
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

	known   map[uint64]int32
	parents []parent
	// progress has the events that happen by themselves, as pairs of states before and after.
	progress [][2]int32
	rests    []int32
	result   Result
	// at is the state whose events are being looked for.
	at int32
}

// parent is how a state was reached first.
type parent struct {
	from int32
	move event
}

type reached struct {
	id    int32
	state state
}

func newModel(o Options) *model {
	return &model{
		options: o, plans: map[sight]steps{}, names: map[target]string{}, targets: map[string]target{},
		moved: map[drainer]*contract.Receipt{}, translated: map[*contract.Receipt]*action.Receipt{}, seed: maphash.MakeSeed(), known: map[uint64]int32{},
		result: Result{Broken: map[string]string{}},
	}
}

// Explore explores all states, breadth first.
func Explore(o Options) Result {
	m := newModel(o)
	first := m.first()
	m.know(&first, parent{from: -1})
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
	m.checkProgress()
	o.Sample.tell(m)
	m.result.States, m.result.Rests = len(m.parents), len(m.rests)
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
	hash := maphash.Comparable(m.seed, *s)
	id, ok := m.known[hash]
	if !ok {
		id = int32(len(m.parents))
		m.known[hash] = id
		m.parents = append(m.parents, how)
	}
	return id, !ok
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
		how := parent{from.id, moves[i].move}
		for _, v := range invariants.Check(before, after) {
			m.broken(v.Invariant.Name, v.String(), how)
		}
		for _, wrong := range m.misplacing(&from.state, to) {
			m.broken(wrong, wrong, how)
		}
		id, isNew := m.know(to, how)
		if isNew {
			next = append(next, reached{id, *to})
		}
		if moves[i].class == progress {
			resting = false
		}
		if moves[i].class == progress || moves[i].class == hope {
			m.progress = append(m.progress, [2]int32{from.id, id})
		}
	}
	m.result.Events += len(moves)
	if resting {
		m.rests = append(m.rests, from.id)
		for _, wrong := range m.atRest(&from.state) {
			m.broken("at rest: "+wrong, wrong, m.parents[from.id])
		}
	}
	return next
}

// broken keeps the first history that breaks a promise.
func (m *model) broken(name, what string, last parent) {
	if _, known := m.result.Broken[name]; known {
		return
	}
	m.result.Broken[name] = what + "\n" + m.history(last).String()
}

// history is a list of events, the last one first.
type history []event

// history is how a state was reached first.
func (m *model) history(last parent) history {
	path := history{last.move}
	for id := last.from; id >= 0; id = m.parents[id].from {
		path = append(path, m.parents[id].move)
	}
	return path
}

func (h history) String() string {
	var story strings.Builder
	for i := len(h) - 1; i >= 0; i-- {
		fmt.Fprintf(&story, "  %d. %s\n", len(h)-1-i, h[i])
	}
	return story.String()
}

// checkProgress checks that events that happen by themselves can lead from each state to a state at
// rest. Then a cluster reaches a rest if no event is delayed forever.
func (m *model) checkProgress() {
	// The states before each state are stored together, up to its end.
	end := make([]int32, len(m.parents)+1)
	for _, edge := range m.progress {
		end[edge[1]+1]++
	}
	for id := range m.parents {
		end[id+1] += end[id]
	}
	before := make([]int32, len(m.progress))
	for _, edge := range m.progress {
		before[end[edge[1]]] = edge[0]
		end[edge[1]]++
	}
	arrives := make([]bool, len(m.parents))
	queue := append([]int32(nil), m.rests...)
	for len(queue) > 0 {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if arrives[id] {
			continue
		}
		arrives[id] = true
		begin := int32(0)
		if id > 0 {
			begin = end[id-1]
		}
		queue = append(queue, before[begin:end[id]]...)
	}
	for id, ok := range arrives {
		if !ok {
			m.broken("it comes to rest", "this never comes to rest", m.parents[id])
			return
		}
	}
}
