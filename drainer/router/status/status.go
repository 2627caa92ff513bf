// Package status is what a router says of itself: whether clients should come, the metrics, the keys that are
// asked for most, and memcached's statistics. Each event loop counts what it does, in bounded room, and keeps a
// board of how it is. The answer to a question is what all boards say together, a moment old. Counts, sketches and
// reports are not safe for concurrent use: each loop has its own, and copies them.
package status

import (
	"errors"
	"sync"

	"example.com/memcached-operator/drainer/routing"
)

// Untried says of a member that it was not tried yet.
const Untried = "not connected yet"

// Loop is how an event loop is.
type Loop struct {
	Counts Counts
	Hot    Sketch
	// Held for clients and members, in bytes.
	Held int
	// Unanswered requests of all members.
	Unanswered  int
	Connections map[string]Connection // by the member's address
	// Serves: it has a table of the rings.
	Serves bool
	// Acknowledged is the number of a table; if it isn't the present one, WaitsFor says why.
	Acknowledged int64
	WaitsFor     string
}

// Connection of a loop to a member.
type Connection struct {
	Why     string // there is none
	Traffic Traffic
}

// Board has what a loop has said last.
type Board struct {
	mu   sync.Mutex
	loop Loop
}

// Update lets the loop write what is new.
func (b *Board) Update(write func(*Loop)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	write(&b.loop)
}

// Boards of all loops.
type Boards []*Board

func (all Boards) each(read func(*Loop)) {
	for _, b := range all {
		b.Update(read)
	}
}

// Ready says why clients should not be sent here, if so: some loop has no table, or has not tried all
// members, or none is connected.
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

// Unanswered is the number of requests that members have been sent, and not answered.
func (all Boards) Unanswered() (n int) {
	all.each(func(l *Loop) { n += l.Unanswered })
	return n
}

// Acknowledged is the number of the table that all requests under way began with, this one at most. If
// it is another one, why says what is waited for.
func (all Boards) Acknowledged(number int64) (acknowledged int64, why string) {
	all.each(func(l *Loop) {
		if l.Acknowledged < number {
			number, why = l.Acknowledged, l.WaitsFor
		}
	})
	return number, why
}

// Counts of all loops.
func (all Boards) Counts() (sum Counts) {
	all.each(func(l *Loop) { sum.Add(&l.Counts) })
	return sum
}

// Held by all loops, in bytes.
func (all Boards) Held() (sum int) {
	all.each(func(l *Loop) { sum += l.Held })
	return sum
}

// Members as metrics have them.
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

// HotKeys are those that are asked for most, in the last minute or so.
func (all Boards) HotKeys() []HotKey {
	var hot []Sketch
	all.each(func(l *Loop) { hot = append(hot, l.Hot) })
	return Hottest(hot)
}
