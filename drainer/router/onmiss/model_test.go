package onmiss

import (
	"fmt"
	"testing"
)

// The model has one key: two routers that fetch it from the source, two writes by other routers, and the member, which
// may evict the item. Each step is one command; between two steps anything else may happen.

// The member's item for the key.
const (
	nothing  = iota
	outdated // the source's value
	written  // a client's
)

// The steps of a fetch (worker.pull), and of a write.
const (
	looks = iota
	fetches
	adds
	looksAgain
	takesBack
	fetched

	marks  = 0
	writes = 1
	done   = 2
)

type state struct {
	item     int
	marked   bool
	evicted  bool
	fetch    [2]int
	write    [2]int
	kind     [2]int // what each write leaves
	finished bool   // a write has been answered
}

// next returns all states that follow. rule leaves out one of the protocol's steps.
func (s state) next(rule string) (all []state) {
	for i := range s.fetch {
		n := s
		switch s.fetch[i] {
		case looks:
			n.fetch[i] = fetches
			if s.item != nothing || s.marked {
				n.fetch[i] = fetched
			}
		case fetches:
			n.fetch[i] = adds
		case adds:
			n.fetch[i] = fetched
			if s.item == nothing {
				n.item, n.fetch[i] = outdated, looksAgain
			}
		case looksAgain:
			n.fetch[i] = fetched
			if s.marked && rule != "second look" {
				n.fetch[i] = takesBack
			}
		case takesBack:
			n.fetch[i] = fetched
			if s.item == outdated {
				n.item = nothing
			}
		default:
			continue
		}
		all = append(all, n)
	}
	for i := range s.write {
		n := s
		switch {
		case s.write[i] == marks && rule != "mark first":
			n.marked, n.write[i] = true, writes
		case s.write[i] == marks: // the write comes first
			n.item, n.write[i], n.finished = s.kind[i], writes, true
		case s.write[i] == writes && rule != "mark first":
			n.item, n.write[i], n.finished = s.kind[i], done, true
		case s.write[i] == writes:
			n.marked, n.write[i] = true, done
		default:
			continue
		}
		all = append(all, n)
	}
	if !s.evicted && s.item != nothing {
		n := s
		n.item, n.evicted = nothing, true
		all = append(all, n)
	}
	return all
}

// wrong tells of a wrong state: after a write the source's value is there, and no router is about to take it
// back.
func (s state) wrong() string {
	pending := false
	for _, at := range s.fetch {
		pending = pending || at == looksAgain && s.marked || at == takesBack
	}
	if s.finished && s.item == outdated && !pending {
		return fmt.Sprintf("the source's value is there after a write: %+v", s)
	}
	return ""
}

func explore(rule string) (states int, wrong string) {
	var open []state
	for _, a := range []int{nothing, written} {
		for _, b := range []int{nothing, written} {
			for _, item := range []int{nothing, outdated} {
				open = append(open, state{item: item, kind: [2]int{a, b}})
			}
		}
	}
	seen := map[state]bool{}
	for len(open) > 0 {
		s := open[len(open)-1]
		open = open[:len(open)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		if why := s.wrong(); why != "" {
			return len(seen), why
		}
		open = append(open, s.next(rule)...)
	}
	return len(seen), ""
}

// Whatever happens between two commands, no value of the source is there after a client's write, except for the moment
// before a router takes it back. The second look is needed, and the mark before the write; the first look only saves work.
func TestNoValueOfTheSourceOutlivesAWrite(t *testing.T) {
	if states, wrong := explore(""); wrong != "" || states < 500 {
		t.Errorf("%d states: %s", states, wrong)
	}
	for _, rule := range []string{"second look", "mark first"} {
		if _, wrong := explore(rule); wrong == "" {
			t.Errorf("without the rule %q nothing goes wrong", rule)
		}
	}
}
