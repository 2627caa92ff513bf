package status

import (
	"math/bits"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/wire"
)

// Outcomes of a request, as metrics have them.
const (
	Hit = iota
	Miss
	Done
	Refused // NOT_STORED, EXISTS
	Failed
	Outcomes
)

// OutcomeNames as metrics have them.
var OutcomeNames = [Outcomes]string{"hit", "miss", "done", "refused", "error"}

const (
	// FirstBucket of latencies ends at two to the power of this, in nanoseconds, and each other
	// one at twice of the one before.
	FirstBucket = 14
	// Buckets that have an end.
	Buckets = 18
)

// States of a ring change.
const States = ringchange.Finish + 1

// Counts of a loop.
type Counts struct {
	Requests [States][wire.Verbs][Outcomes]uint64
	Latency  [Buckets + 1]uint64 // the last one: slower than all others
	Nanos    uint64              // of all latencies
	Sent     uint64              // bytes of answers
	Received uint64              // bytes that clients have sent
	Missed   uint64              // reads that have failed, and were answered as misses
}

// Count an answer of a size in bytes, after a time in nanoseconds, to a request that began in a
// state.
func (c *Counts) Count(state ringchange.State, verb wire.Verb, code wire.Code, size int, nanos int64) {
	c.Requests[state][verb][outcomeOf(verb, code)]++
	took := uint64(max(nanos, 0))
	c.Nanos += took
	c.Latency[min(max(bits.Len64(took), FirstBucket)-FirstBucket, Buckets)]++
	c.Sent += uint64(size)
}

func outcomeOf(v wire.Verb, code wire.Code) int {
	switch code {
	case wire.Value:
		return Hit
	case wire.End, wire.Miss:
		return Miss
	case wire.Exists, wire.NotStored:
		return Refused
	case wire.Failure, wire.Broken:
		return Failed
	case wire.Header:
		if v == wire.MetaGet {
			return Hit
		}
	}
	return Done
}

// Add the counts of another loop.
func (c *Counts) Add(o *Counts) {
	for state := range c.Requests {
		for v := range c.Requests[state] {
			for i, n := range o.Requests[state][v] {
				c.Requests[state][v][i] += n
			}
		}
	}
	for i := range c.Latency {
		c.Latency[i] += o.Latency[i]
	}
	c.Nanos += o.Nanos
	c.Sent += o.Sent
	c.Received += o.Received
	c.Missed += o.Missed
}

// Traffic with a member.
type Traffic struct {
	Requests       [Outcomes]uint64
	Nanos          uint64 // the time that they took in all
	Sent, Received uint64 // bytes
}

// Count an answer after a time in nanoseconds.
func (t *Traffic) Count(verb wire.Verb, code wire.Code, nanos int64) {
	t.Requests[outcomeOf(verb, code)]++
	t.Nanos += uint64(max(nanos, 0))
}

// Add that of another loop.
func (t *Traffic) Add(o *Traffic) {
	for i, n := range o.Requests {
		t.Requests[i] += n
	}
	t.Nanos += o.Nanos
	t.Sent += o.Sent
	t.Received += o.Received
}
