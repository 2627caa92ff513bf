package router

import (
	"fmt"
	"os"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/router/meter"
	"example.com/memcached-operator/drainer/router/wire"
)

// memberVersion is what a member has said.
func (r *Router) memberVersion() string {
	if v := r.version.Load(); v != nil {
		return *v
	}
	return "SERVER_ERROR no member is available\r\n"
}

// stats answers for the router. Those of a kind are the members' own.
func (l *loop) stats(kind []byte) string {
	switch string(kind) {
	case "":
	case "reset":
		return "RESET\r\n"
	default:
		return wire.AnswerError
	}
	r := l.router
	c := r.counts()
	sum := func(outcome int, verbs ...wire.Verb) (n uint64) {
		for _, v := range verbs {
			for state := range c.Requests {
				n += c.Requests[state][v][outcome]
			}
		}
		return n
	}
	hits := sum(meter.Hit, wire.Get, wire.Gets, wire.Gat, wire.Gats, wire.MetaGet)
	misses := sum(meter.Miss, wire.Get, wire.Gets, wire.Gat, wire.Gats, wire.MetaGet)
	sets := sum(meter.Done, wire.Set, wire.Add, wire.Replace, wire.Append, wire.Prepend, wire.Cas, wire.MetaSet)
	var b strings.Builder
	stat := func(name string, value any) { fmt.Fprintf(&b, "STAT %s %v\r\n", name, value) }
	stat("pid", os.Getpid())
	stat("uptime", int64(time.Since(r.began).Seconds()))
	stat("time", time.Now().Unix())
	stat("version", strings.TrimSpace(strings.TrimPrefix(r.memberVersion(), "VERSION ")))
	stat("pointer_size", 64)
	stat("curr_connections", r.connections.Load())
	stat("total_connections", r.accepted.Load())
	stat("cmd_get", hits+misses)
	stat("cmd_set", sets)
	stat("get_hits", hits)
	stat("get_misses", misses)
	stat("bytes_read", c.Received)
	stat("bytes_written", c.Sent)
	stat("threads", len(r.loops))
	b.WriteString(wire.AnswerEnd)
	return b.String()
}

// counts of all loops, a moment ago.
func (r *Router) counts() (sum meter.Counts) {
	for _, l := range r.loops {
		l.published.mu.Lock()
		sum.Add(&l.published.counts)
		l.published.mu.Unlock()
	}
	return sum
}
