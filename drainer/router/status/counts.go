package status

import (
	"math/bits"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
)

// The outcomes of a request, as in the metrics.
const (
	Hit = iota
	Miss
	Done
	Refused // NOT_STORED, EXISTS
	Failed
	Outcomes
)

// OutcomeNames are the names in the metrics.
var OutcomeNames = [Outcomes]string{"hit", "miss", "done", "refused", "error"}

const (
	// FirstBucket is the exponent of the end of the first bucket of latencies, a power of two in nanoseconds.
	// Each further bucket ends at twice the end of the one before.
	FirstBucket = 14
	// Buckets is the number of buckets that have an end.
	Buckets = 18
)

// States is the number of states of a ring change.
const States = ringchange.Finish + 1

// Counts are the counts of a loop.
type Counts struct {
	Requests [States][wire.Verbs][Outcomes]uint64
	Latency  [Buckets + 1]uint64 // the last one is for all higher latencies
	Nanos    uint64              // sum of all latencies
	Sent     uint64              // bytes of answers
	Received uint64              // bytes that clients have sent
	Missed   uint64              // failed reads that were answered as misses
}

// Count counts an answer of size bytes, after nanos nanoseconds, to a request that began in that state.
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

// Add adds the counts of another loop.
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

// Traffic counts the traffic with a member.
type Traffic struct {
	Requests       [Outcomes]uint64
	Nanos          uint64 // their total time
	Sent, Received uint64 // bytes
}

// Count counts an answer after nanos nanoseconds.
func (t *Traffic) Count(verb wire.Verb, code wire.Code, nanos int64) {
	t.Requests[outcomeOf(verb, code)]++
	t.Nanos += uint64(max(nanos, 0))
}

// Add adds the traffic of another loop.
func (t *Traffic) Add(o *Traffic) {
	for i, n := range o.Requests {
		t.Requests[i] += n
	}
	t.Nanos += o.Nanos
	t.Sent += o.Sent
	t.Received += o.Received
}
