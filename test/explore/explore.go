// Package explore has the common parts of explorations of models: which states were reached, and how, and
// whether each can come to a rest.
package explore

import (
	"fmt"
	"strings"
)

// Graph has the states that were reached, by numbers. M is an event between two states.
type Graph[M any] struct {
	// Broken has, by promise, a shortest history that breaks it.
	Broken map[string]string

	known   map[uint64]int32
	parents []Step[M]
	// progress has the events that happen by themselves, as pairs of states before and after.
	progress [][2]int32
	rests    []int32
}

// Step is how a state was reached first: by an event in another state; From is -1 for the first state.
type Step[M any] struct {
	From int32
	Move M
}

// New returns a graph without states.
func New[M any]() *Graph[M] {
	return &Graph[M]{Broken: map[string]string{}, known: map[uint64]int32{}}
}

// States is the number of states.
func (g *Graph[M]) States() int { return len(g.parents) }

// Rests is the number of states at rest.
func (g *Graph[M]) Rests() int { return len(g.rests) }

// Know numbers the state with this hash, and tells whether it is new.
func (g *Graph[M]) Know(hash uint64, how Step[M]) (id int32, isNew bool) {
	id, ok := g.known[hash]
	if !ok {
		id = int32(len(g.parents))
		g.known[hash] = id
		g.parents = append(g.parents, how)
	}
	return id, !ok
}

// How tells how the state was reached first.
func (g *Graph[M]) How(id int32) Step[M] { return g.parents[id] }

// Progress notes an event that happens by itself, or may.
func (g *Graph[M]) Progress(from, to int32) { g.progress = append(g.progress, [2]int32{from, to}) }

// Rest notes that no event happens by itself in the state.
func (g *Graph[M]) Rest(id int32) { g.rests = append(g.rests, id) }

// Break keeps the first history that breaks a promise.
func (g *Graph[M]) Break(promise, what string, last Step[M]) {
	if _, known := g.Broken[promise]; !known {
		g.Broken[promise] = what + "\n" + g.History(last).String()
	}
}

// History is a list of events, the last one first.
type History[M any] []M

// History is how a state was reached first.
func (g *Graph[M]) History(last Step[M]) History[M] {
	path := History[M]{last.Move}
	for id := last.From; id >= 0; id = g.parents[id].From {
		path = append(path, g.parents[id].Move)
	}
	return path
}

func (h History[M]) String() string {
	var story strings.Builder
	for i := len(h) - 1; i >= 0; i-- {
		fmt.Fprintf(&story, "  %d. %v\n", len(h)-1-i, h[i])
	}
	return story.String()
}

// CheckProgress checks that events that happen by themselves can lead from each state to a state at rest. Then a rest
// is reached if no event is delayed forever.
func (g *Graph[M]) CheckProgress() {
	// The states before each state are stored together, up to its end.
	end := make([]int32, len(g.parents)+1)
	for _, edge := range g.progress {
		end[edge[1]+1]++
	}
	for id := range g.parents {
		end[id+1] += end[id]
	}
	before := make([]int32, len(g.progress))
	for _, edge := range g.progress {
		before[end[edge[1]]] = edge[0]
		end[edge[1]]++
	}
	arrives := make([]bool, len(g.parents))
	queue := append([]int32(nil), g.rests...)
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
			g.Break("it comes to rest", "this never comes to rest", g.parents[id])
			return
		}
	}
}
