package status

import (
	"fmt"
	"os"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/wire"
)

// Statistics are the router's answer to memcached's stats.
type Statistics struct {
	Began time.Time
	// Version is a member's version, in the member's own form.
	Version             string
	Connected, Accepted int64
	Threads             int
	Counts              Counts
}

// Answer returns the answer in memcached's text protocol.
func (s *Statistics) Answer() string {
	sum := func(outcome int, verbs ...wire.Verb) (n uint64) {
		for _, v := range verbs {
			for state := range s.Counts.Requests {
				n += s.Counts.Requests[state][v][outcome]
			}
		}
		return n
	}
	hits := sum(Hit, wire.Get, wire.Gets, wire.Gat, wire.Gats, wire.MetaGet)
	misses := sum(Miss, wire.Get, wire.Gets, wire.Gat, wire.Gats, wire.MetaGet)
	sets := sum(Done, wire.Set, wire.Add, wire.Replace, wire.Append, wire.Prepend, wire.Cas, wire.MetaSet)
	var b strings.Builder
	stat := func(name string, value any) { fmt.Fprintf(&b, "STAT %s %v\r\n", name, value) }
	stat("pid", os.Getpid())
	stat("uptime", int64(time.Since(s.Began).Seconds()))
	stat("time", time.Now().Unix())
	stat("version", strings.TrimSpace(strings.TrimPrefix(s.Version, "VERSION ")))
	stat("pointer_size", 64)
	stat("curr_connections", s.Connected)
	stat("total_connections", s.Accepted)
	stat("cmd_get", hits+misses)
	stat("cmd_set", sets)
	stat("get_hits", hits)
	stat("get_misses", misses)
	stat("bytes_read", s.Counts.Received)
	stat("bytes_written", s.Counts.Sent)
	stat("threads", s.Threads)
	b.WriteString(wire.AnswerEnd)
	return b.String()
}
