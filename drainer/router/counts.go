package router

import (
	"math/bits"

	"example.com/memcached-operator/drainer/router/wire"
)

// outcomes of a request, as metrics have them.
const (
	hit = iota
	miss
	done
	refused // NOT_STORED, EXISTS
	failed
	outcomes
)

var outcomeNames = [outcomes]string{"hit", "miss", "done", "refused", "error"}

const (
	// The first bucket of latencies ends at 2^firstBucket nanoseconds, each other one at
	// twice of the one before.
	firstBucket = 14
	buckets     = 18
)

// counts of a loop.
type counts struct {
	requests [wire.Verbs][outcomes]uint64
	latency  [buckets + 1]uint64 // the last one: slower than all others
	nanos    uint64              // of all latencies
	sent     uint64              // bytes of answers
}

func (c *counts) count(s *slot, now int64) {
	c.requests[s.verb][outcomeOf(s.verb, s.outcome)]++
	took := uint64(max(now-s.began, 0))
	c.nanos += took
	c.latency[min(max(bits.Len64(took), firstBucket)-firstBucket, buckets)]++
	c.sent += uint64(s.size)
}

func outcomeOf(v wire.Verb, code wire.Code) int {
	switch code {
	case wire.Value:
		return hit
	case wire.End, wire.Miss:
		return miss
	case wire.Exists, wire.NotStored:
		return refused
	case wire.Failure, wire.Broken:
		return failed
	case wire.Header:
		if v == wire.MetaGet {
			return hit
		}
	}
	return done
}

// add the counts of another loop.
func (c *counts) add(o *counts) {
	for v := range c.requests {
		for i := range c.requests[v] {
			c.requests[v][i] += o.requests[v][i]
		}
	}
	for i := range c.latency {
		c.latency[i] += o.latency[i]
	}
	c.nanos += o.nanos
	c.sent += o.sent
}
