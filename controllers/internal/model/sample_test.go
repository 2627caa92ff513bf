package model

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/memcached-operator/test/tier"
)

var (
	seed    = flag.Uint64("model.seed", 1, "chooses the steps that are compared with production; 0 is the time")
	pairs   = flag.Int("model.pairs", 0, "how many steps of each verb and outcome are compared with production; 0 for few, or more in make test-all")
	perKind = sync.OnceValue(func() int {
		switch {
		case *pairs > 0:
			return *pairs
		case tier.All():
			return 12
		}
		return 4
	})
)

// chosen is the seed.
var chosen = sync.OnceValue(func() uint64 {
	if *seed == 0 {
		return uint64(time.Now().UnixNano())
	}
	return *seed
})

// pair is a state and the step that the model's operator took in it: the first remaining step of a
// plan.
type pair struct {
	before  state
	outcome outcome
	// planned: the plan was made in this state, not before.
	planned bool
	// reached is the number of the state, and history tells how it was reached first.
	reached int32
	history history
}

func (p *pair) step() step { return p.before.todo.todo[0] }

// pairKind is a kind of pairs. A sample has some pairs of each kind.
type pairKind struct {
	verb    verb
	outcome outcome
	planned bool
}

func (k pairKind) compare(other pairKind) int {
	return cmp.Or(cmp.Compare(k.verb, other.verb), cmp.Compare(k.outcome, other.outcome), strings.Compare(fmt.Sprint(k.planned), fmt.Sprint(other.planned)))
}

// sample has some pairs of each kind. Each pair of the exploration has the same
// probability.
type sample struct {
	random *rand.Rand
	drawn  map[pairKind]*drawn
}

// drawn has the sampled pairs of one kind, and how many it was drawn from.
type drawn struct {
	from  int
	pairs []pair
}

func newSample(name string) *sample {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &sample{random: rand.New(rand.NewPCG(chosen(), h.Sum64())), drawn: map[pairKind]*drawn{}}
}

// tried offers the first step in this state to the sample.
func (m *model) tried(s *state, result outcome, planned bool) {
	sample := m.options.Sample
	if sample == nil {
		return
	}
	kind := pairKind{s.todo.todo[0].verb, result, planned}
	d := sample.drawn[kind]
	if d == nil {
		d = &drawn{}
		sample.drawn[kind] = d
	}
	d.from++
	if len(d.pairs) < perKind() {
		d.pairs = append(d.pairs, pair{before: *s, outcome: result, planned: planned, reached: m.at})
	} else if at := sample.random.IntN(d.from); at < perKind() {
		d.pairs[at] = pair{before: *s, outcome: result, planned: planned, reached: m.at}
	}
}

// tell sets how the pairs were reached.
func (s *sample) tell(m *model) {
	if s == nil {
		return
	}
	for _, d := range s.drawn {
		for i := range d.pairs {
			d.pairs[i].history = m.graph.History(m.graph.How(d.pairs[i].reached))
		}
	}
}

// choose returns the pairs of each kind to compare, from all explorations in turn.
func choose(all map[string]*exploration) map[string][]*pair {
	names := slices.Sorted(maps.Keys(all))
	kinds := map[pairKind]bool{}
	for _, e := range all {
		for kind := range e.Sample.drawn {
			kinds[kind] = true
		}
	}
	out := map[string][]*pair{}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), pairKind.compare) {
		left := perKind()
		for turn := 0; turn < perKind(); turn++ {
			for _, name := range names {
				if d := all[name].Sample.drawn[kind]; d != nil && turn < len(d.pairs) && left > 0 {
					out[name] = append(out[name], &d.pairs[turn])
					left--
				}
			}
		}
	}
	return out
}
