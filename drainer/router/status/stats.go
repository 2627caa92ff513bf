package status

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/wire"
)

// Statistics are the router's answer to memcached's stats: its own counts of requests, and the members' sums of what
// is stored.
type Statistics struct {
	Began time.Time
	// Version is a member's version, in the member's own form.
	Version             string
	Connected, Accepted int64
	Threads             int
	Counts              Counts
	// Sums are those of the members' answers to stats.
	Sums map[string]string
}

// stored are the statistics that the router answers with the members' sums.
var stored = []string{"curr_items", "total_items", "bytes", "limit_maxbytes", "evictions", "reclaimed", "expired_unfetched", "evicted_unfetched"}

// largest are the statistics of a slab class that are not added up over members.
var largest = []string{"chunk_size", "chunks_per_page", "age", "age_hot", "age_warm", "evicted_time", "active_slabs"}

// Add adds a member's statistics to the sums. Sizes and ages are the largest of the members', and texts the first one's.
func Add(sums, member map[string]string) {
	for name, value := range member {
		n, err := strconv.ParseUint(value, 10, 64)
		before, err2 := strconv.ParseUint(sums[name], 10, 64)
		switch _, known := sums[name]; {
		case !known:
			sums[name] = value
		case err != nil || err2 != nil:
		case slices.Contains(largest, name[strings.LastIndexByte(name, ':')+1:]):
			sums[name] = strconv.FormatUint(max(before, n), 10)
		default:
			sums[name] = strconv.FormatUint(before+n, 10)
		}
	}
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
	for _, name := range stored {
		if value, ok := s.Sums[name]; ok {
			stat(name, value)
		}
	}
	b.WriteString(wire.AnswerEnd)
	return b.String()
}
