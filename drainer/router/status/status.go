// Package status has a router's reports about itself: whether it is ready, the metrics, the keys that are
// asked for most, and memcached's statistics. Each event loop counts in bounded memory, and keeps a board
// with its state. Answers combine all boards, which are a moment old. Counts, sketches and reports are not
// safe for concurrent use: each loop has its own, and copies them.
package status

import (
	"errors"
	"sync"

	"example.com/memcached-operator/drainer/routing"
)

// Untried is the state of a member without a first attempt to connect.
const Untried = "not connected yet"

// Loop is the state of an event loop.
type Loop struct {
	Counts Counts
	Hot    Sketch
	// Held is the memory for clients and members, in bytes.
	Held int
	// Unanswered counts the unanswered requests of all members.
	Unanswered  int
	Connections map[string]Connection // by the member's address
	// Serves means that the loop has a table of the rings.
	Serves bool
	// Acknowledged is the number of a table. If it isn't the present one, WaitsFor says why.
	Acknowledged int64
	WaitsFor     string
}

// Connection of a loop to a member.
type Connection struct {
	Why     string // why there is none
	Traffic Traffic
}

// Board has a loop's latest state.
type Board struct {
	mu   sync.Mutex
	loop Loop
}

// Update lets the loop write its new state.
func (b *Board) Update(write func(*Loop)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write(&b.loop)
}

// Boards are the boards of all loops.
type Boards []*Board

func (all Boards) each(read func(*Loop)) {
	for _, b := range all {
		b.Update(read)
	}
}

// Ready returns why clients should not use the router; nil if they can. The router is not ready if a loop has
// no table, or has not tried all members, or has no connected member.
func (all Boards) Ready(members []routing.Server) error {
	untried, connected := false, false
	all.each(func(l *Loop) {
		untried = untried || !l.Serves
		for _, s := range members {
			switch m, known := l.Connections[s.Address()]; {
			case !known || m.Why == Untried:
				untried = true
			case m.Why == "":
				connected = true
			}
		}
	})
	if untried || !connected {
		return errors.New("no member is connected")
	}
	return nil
}

// Unanswered returns the number of requests that members have been sent and have not answered.
func (all Boards) Unanswered() (n int) {
	all.each(func(l *Loop) { n += l.Unanswered })
	return n
}

// Acknowledged returns the number of the table that all unanswered requests began with, at most number. If it
// is another one, why says what it waits for.
func (all Boards) Acknowledged(number int64) (acknowledged int64, why string) {
	all.each(func(l *Loop) {
		if l.Acknowledged < number {
			number, why = l.Acknowledged, l.WaitsFor
		}
	})
	return number, why
}

// Counts returns the sum of all loops' counts.
func (all Boards) Counts() (sum Counts) {
	all.each(func(l *Loop) { sum.Add(&l.Counts) })
	return sum
}

// Held returns the memory of all loops, in bytes.
func (all Boards) Held() (sum int) {
	all.each(func(l *Loop) { sum += l.Held })
	return sum
}

// Members returns the members for the metrics.
func (all Boards) Members(members []routing.Server) (sums []Member) {
	for _, s := range members {
		sum := Member{Name: s.String()}
		all.each(func(l *Loop) {
			if m, ok := l.Connections[s.Address()]; ok {
				sum.Traffic.Add(&m.Traffic)
				if m.Why == "" {
					sum.Connections++
				}
			}
		})
		sums = append(sums, sum)
	}
	return sums
}

// HotKeys returns the keys that were asked for most, in the last minute or so.
func (all Boards) HotKeys() []HotKey {
	var hot []Sketch
	all.each(func(l *Loop) { hot = append(hot, l.Hot) })
	return Hottest(hot)
}
