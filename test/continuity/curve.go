package main

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"example.com/memcached-operator/test/internal/harness"
)

// second has the application's results in one second.
type second struct {
	// hits are reads that found the last value. lost are reads that missed a value that the application had
	// stored, and not deleted. Reads of deleted keys count as neither.
	hits, lost int
	// old counts values that a later write had replaced, and undone values that were deleted.
	old, undone int
	// failed counts failed requests by their kind, and connects those whose connection failed.
	failed    [kinds]int
	connects  int
	latencies harness.Times
}

// The kinds of requests.
const (
	reading = iota
	storing
	deleting
	kinds
)

// errors is the number of failed requests.
func (s *second) errors() (sum int) {
	for _, n := range s.failed {
		sum += n
	}
	return sum
}

// add adds the counts of another one, without its latencies.
func (s *second) add(o *second) {
	s.hits, s.lost = s.hits+o.hits, s.lost+o.lost
	s.old, s.undone = s.old+o.old, s.undone+o.undone
	for kind, n := range o.failed {
		s.failed[kind] += n
	}
	s.connects += o.connects
}

// share returns that of hits; 1 if there was no read.
func (s *second) share() float64 {
	if s.hits+s.lost == 0 {
		return 1
	}
	return float64(s.hits) / float64(s.hits+s.lost)
}

// worst is the 99th percentile of the latencies.
func (s *second) worst() time.Duration { return s.latencies.Percentile(99) }

// curve has the seconds since the load began.
type curve struct {
	mu      sync.Mutex
	began   time.Time
	event   time.Duration
	seconds []second
}

// note changes the second that a time is in.
func (c *curve) note(at time.Time, change func(*second)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(at.Sub(c.began) / time.Second)
	for len(c.seconds) <= i {
		c.seconds = append(c.seconds, second{})
	}
	change(&c.seconds[i])
}

// total adds up all seconds, without latencies.
func (c *curve) total() (t second) {
	for i := range c.seconds {
		t.add(&c.seconds[i])
	}
	return t
}

// lostSeconds is how many seconds' worth of hits were lost, by the rate of all reads.
func (c *curve) lostSeconds() float64 {
	t := c.total()
	whole := len(c.seconds) - 1 // the last one is cut
	if whole < 1 || t.hits+t.lost == 0 {
		return 0
	}
	return float64(t.lost) * float64(whole) / float64(t.hits+t.lost)
}

var header = harness.Header("event", "system", "list", "keys", "worst second, % hits:", "hits lost, s:", "old values:",
	"deletes undone:", "failed reads:", "failed sets:", "failed deletes:", "failed connects:", "worst p99, ms:")

func row(r *one, c *curve) string {
	load := "uniform"
	if r.zipf {
		load = "Zipf 0.99"
	}
	worst, slowest := 1.0, time.Duration(0)
	for i := range c.seconds[:max(0, len(c.seconds)-1)] {
		worst, slowest = min(worst, c.seconds[i].share()), max(slowest, c.seconds[i].worst())
	}
	t := c.total()
	return harness.Row(r.event.name, r.system.name, r.list.name, load, fmt.Sprintf("%.1f", 100*worst), fmt.Sprintf("%.2f", c.lostSeconds()),
		t.old, t.undone, t.failed[reading], t.failed[storing], t.failed[deleting], t.connects, fmt.Sprintf("%.1f", harness.Micros(slowest)/1000))
}

// csv has a line for each second.
func (c *curve) csv() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# the event is at second %.1f\nsecond,hits,lost,old,undone,failed reads,failed sets,failed deletes,failed connects,p99 microseconds\n", c.event.Seconds())
	for i := range c.seconds {
		s := &c.seconds[i]
		fmt.Fprintf(&b, "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d\n", i, s.hits, s.lost, s.old, s.undone, s.failed[reading], s.failed[storing], s.failed[deleting], s.connects, s.worst().Microseconds())
	}
	return b.Bytes()
}
