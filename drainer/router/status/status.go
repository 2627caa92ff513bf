// Package status is what a router says of itself. Each event loop keeps a board of how it is; who asks
// is told what all of them say together, a moment old: whether clients should come, the metrics, the
// keys that are asked for most, and memcached's statistics.
package status

import (
	"errors"
	"sync"

	"example.com/memcached-operator/drainer/router/meter"
	"example.com/memcached-operator/drainer/routing"
)

// Untried says of a member that it was not tried yet.
const Untried = "not connected yet"

// Loop is how an event loop is.
type Loop struct {
	Counts meter.Counts
	Hot    meter.Sketch
	// Held for clients and members, in bytes.
	Held int
	// Unanswered requests of all members.
	Unanswered int
	Members    map[string]Member // by address
	// Serves: it has a table of the rings.
	Serves bool
	// Acknowledged is the number of a table; if it isn't the present one, WaitsFor says why.
	Acknowledged int64
	WaitsFor     string
}

// Member of a loop.
type Member struct {
	Why     string // there is no connection
	Traffic meter.Traffic
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
			switch m, known := l.Members[s.Address()]; {
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
func (all Boards) Counts() (sum meter.Counts) {
	all.each(func(l *Loop) { sum.Add(&l.Counts) })
	return sum
}

// Held by all loops, in bytes.
func (all Boards) Held() (sum int) {
	all.each(func(l *Loop) { sum += l.Held })
	return sum
}

// Members as metrics have them.
func (all Boards) Members(members []routing.Server) (sums []meter.Member) {
	for _, s := range members {
		sum := meter.Member{Name: s.String()}
		all.each(func(l *Loop) {
			if m, ok := l.Members[s.Address()]; ok {
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
func (all Boards) HotKeys() []meter.HotKey {
	var hot []meter.Sketch
	all.each(func(l *Loop) { hot = append(hot, l.Hot) })
	return meter.Hottest(hot)
}
