package router

import (
	"bufio"
	"fmt"
	"io"
	"net/http"

	"example.com/memcached-operator/drainer/router/wire"
)

// Admin answers /ready, and /metrics in Prometheus' text format.
func (r *Router) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := r.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
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
		for o, n := range c.requests[v] {
			if n > 0 {
				fmt.Fprintf(w, "memcached_router_requests_total{command=%q,outcome=%q} %d\n", v, outcomeNames[o], n)
			}
		}
	}
	head("request_seconds", "histogram", "From a request's arrival to the end of its answer.")
	var sum uint64
	for i, n := range c.latency {
		sum += n
		if i < buckets {
			fmt.Fprintf(w, "memcached_router_request_seconds_bucket{le=\"%g\"} %d\n", float64(uint64(1)<<(firstBucket+i))/1e9, sum)
		}
	}
	fmt.Fprintf(w, "memcached_router_request_seconds_bucket{le=\"+Inf\"} %d\n", sum)
	fmt.Fprintf(w, "memcached_router_request_seconds_sum %g\nmemcached_router_request_seconds_count %d\n", float64(c.nanos)/1e9, sum)
	head("answer_bytes_total", "counter", "Bytes of answers.")
	fmt.Fprintf(w, "memcached_router_answer_bytes_total %d\n", c.sent)
	head("connections", "gauge", "Connections of applications.")
	fmt.Fprintf(w, "memcached_router_connections %d\n", r.connections.Load())
	head("held_bytes", "gauge", "What is kept for clients: large requests, and answers that they have not taken.")
	fmt.Fprintf(w, "memcached_router_held_bytes %d\n", r.held())
	head("member_connections", "gauge", "Connections to a member, one for each thread.")
	connected := r.connected()
	for _, s := range r.table.Load().servers() {
		fmt.Fprintf(w, "memcached_router_member_connections{member=%q} %d\n", s.String(), connected[s.Address()])
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

// connected is the number of connections to each member.
func (r *Router) connected() map[string]int {
	connected := map[string]int{}
	for _, l := range r.loops {
		l.published.mu.Lock()
		for address, why := range l.published.members {
			if why == "" {
				connected[address]++
			}
		}
		l.published.mu.Unlock()
	}
	return connected
}
