package router

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"example.com/memcached-operator/drainer/router/meter"
	"example.com/memcached-operator/drainer/router/wire"
)

// Admin answers /ready, /metrics in Prometheus' text format, and /hot with the keys that
// are asked for most, in JSON.
func (r *Router) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /hot", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.HotKeys())
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		r.metrics(w)
	})
	return mux
}

// metrics are a moment old.
func (r *Router) metrics(to io.Writer) {
	w := bufio.NewWriter(to)
	defer w.Flush()
	c := r.counts()
	head := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP memcached_router_%s %s\n# TYPE memcached_router_%s %s\n", name, help, name, kind)
	}
	head("requests_total", "counter", "Requests to members that were answered; each key of a read is one.")
	for v := range wire.Verbs {
		for o, n := range c.Requests[v] {
			if n > 0 {
				fmt.Fprintf(w, "memcached_router_requests_total{command=%q,outcome=%q} %d\n", v, meter.OutcomeNames[o], n)
			}
		}
	}
	head("request_seconds", "histogram", "From a request's arrival to the end of its answer.")
	var sum uint64
	for i, n := range c.Latency {
		sum += n
		if i < meter.Buckets {
			fmt.Fprintf(w, "memcached_router_request_seconds_bucket{le=\"%g\"} %d\n", float64(uint64(1)<<(meter.FirstBucket+i))/1e9, sum)
		}
	}
	fmt.Fprintf(w, "memcached_router_request_seconds_bucket{le=\"+Inf\"} %d\n", sum)
	fmt.Fprintf(w, "memcached_router_request_seconds_sum %g\nmemcached_router_request_seconds_count %d\n", float64(c.Nanos)/1e9, sum)
	head("answer_bytes_total", "counter", "Bytes of answers.")
	fmt.Fprintf(w, "memcached_router_answer_bytes_total %d\n", c.Sent)
	head("connections", "gauge", "Connections of applications.")
	fmt.Fprintf(w, "memcached_router_connections %d\n", r.connections.Load())
	head("held_bytes", "gauge", "What is kept for clients: large requests, and answers that they have not taken.")
	fmt.Fprintf(w, "memcached_router_held_bytes %d\n", r.held())
	members := r.members()
	head("member_requests_total", "counter", "Requests to a member; a ring change makes several of one.")
	for _, m := range members {
		fmt.Fprintf(w, "memcached_router_member_requests_total{member=%q,outcome=\"answer\"} %d\n", m.name, m.answered-m.failed)
		fmt.Fprintf(w, "memcached_router_member_requests_total{member=%q,outcome=\"error\"} %d\n", m.name, m.failed)
	}
	head("member_request_seconds_total", "counter", "Time that a member's requests took in all, with the client's part.")
	for _, m := range members {
		fmt.Fprintf(w, "memcached_router_member_request_seconds_total{member=%q} %g\n", m.name, float64(m.nanos)/1e9)
	}
	number, _ := r.Acknowledged()
	t := r.table.Load()
	head("ring_table", "gauge", "Number of the table of the rings.")
	fmt.Fprintf(w, "memcached_router_ring_table{state=%q} %d\n", t.State, t.Number)
	head("ring_table_acknowledged", "gauge", "Number of the table that all requests under way began with.")
	fmt.Fprintf(w, "memcached_router_ring_table_acknowledged %d\n", number)
	head("member_connections", "gauge", "Connections to a member, one for each thread.")
	for _, m := range members {
		fmt.Fprintf(w, "memcached_router_member_connections{member=%q} %d\n", m.name, m.connections)
	}
}

func (r *Router) held() (sum int) {
	for _, l := range r.loops {
		l.published.mu.Lock()
		sum += l.published.held
		l.published.mu.Unlock()
	}
	return sum
}

// memberSum is what all loops know of a member.
type memberSum struct {
	name        string
	connections int
	memberState
}

func (r *Router) members() (all []memberSum) {
	for _, s := range r.table.Load().servers() {
		sum := memberSum{name: s.String()}
		for _, l := range r.loops {
			l.published.mu.Lock()
			if m, ok := l.published.members[s.Address()]; ok {
				sum.answered += m.answered
				sum.failed += m.failed
				sum.nanos += m.nanos
				if m.why == "" {
					sum.connections++
				}
			}
			l.published.mu.Unlock()
		}
		all = append(all, sum)
	}
	return all
}

// HotKeys are those that are asked for most, in the last minute or so.
func (r *Router) HotKeys() []meter.HotKey {
	var all []meter.Sketch
	for _, l := range r.loops {
		l.published.mu.Lock()
		all = append(all, l.published.hot)
		l.published.mu.Unlock()
	}
	return meter.Hottest(all)
}
