package status

import (
	"github.com/prometheus/client_golang/prometheus"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/wire"
)

// Report has a router's metrics, and no keys, because these may be secrets, and their number is unbounded.
type Report struct {
	Counts
	// Clients is the number of connected clients.
	Clients int64
	// Held is the memory for clients and members, in bytes.
	Held    int
	Members []Member
	// Table and State are those of the rings, Acknowledged is the number of the acknowledged table.
	Table        int64
	State        ringchange.State
	Acknowledged int64
	// Source counts the keys that another cache was asked for; nil if there is none.
	Source *Source
}

// Source counts the keys that another cache was asked for, by its answer.
type Source struct{ Hits, Misses, Failures uint64 }

// Member is a member of the rings.
type Member struct {
	Name        string
	Connections int
	Traffic     Traffic
}

// metric describes one of the router's metrics.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("memcached_router_"+name, help, labels, nil)
}

var (
	requests       = metric("requests_total", "Requests that were answered; each key of a read is one.", "command", "outcome", "state")
	latency        = metric("request_seconds", "From a request's arrival to the end of its answer.")
	missed         = metric("failed_reads_missed_total", "Reads that failed, because the member could not be asked for example, and were answered as misses. They are errors among the requests.")
	received       = metric("request_bytes_total", "Bytes that applications have sent.")
	sent           = metric("answer_bytes_total", "Bytes of answers.")
	connections    = metric("connections", "Connections of applications.")
	held           = metric("held_bytes", "What is kept: requests that are not complete or that members have not taken, answers that applications have not taken, and what connections by TLS or in the binary protocol take.")
	memberRequests = metric("member_requests_total", "Requests to a member that were answered; a ring change makes several of one.", "member", "outcome")
	memberSeconds  = metric("member_request_seconds_total", "Time that a member's requests took in all, with the client's part.", "member")
	memberSent     = metric("member_sent_bytes_total", "Bytes that a member was sent.", "member")
	memberReceived = metric("member_received_bytes_total", "Bytes that a member has answered.", "member")
	memberConns    = metric("member_connections", "Connections to a member, one for each thread.", "member")
	ringTable      = metric("ring_table", "Number of the table of the rings.", "state")
	sourceKeys     = metric("source_keys_total", "Keys that another cache was asked for, because the members missed them (warmFrom.onMiss).", "outcome")
	acknowledged   = metric("ring_table_acknowledged", "Number of the table that all requests under way began with.")
)

// Collect sends the metrics.
func (r *Report) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	for state := range States {
		for v := range wire.Verbs {
			for o, n := range r.Requests[state][v] {
				if n > 0 {
					counter(requests, float64(n), v.String(), OutcomeNames[o], state.String())
				}
			}
		}
	}
	to <- r.latencies()
	counter(missed, float64(r.Missed))
	counter(received, float64(r.Received))
	counter(sent, float64(r.Sent))
	gauge(connections, float64(r.Clients))
	gauge(held, float64(r.Held))
	for i := range r.Members {
		m := &r.Members[i]
		for o, n := range m.Traffic.Requests {
			counter(memberRequests, float64(n), m.Name, OutcomeNames[o])
		}
		counter(memberSeconds, float64(m.Traffic.Nanos)/1e9, m.Name)
		counter(memberSent, float64(m.Traffic.Sent), m.Name)
		counter(memberReceived, float64(m.Traffic.Received), m.Name)
		gauge(memberConns, float64(m.Connections), m.Name)
	}
	gauge(ringTable, float64(r.Table), r.State.String())
	gauge(acknowledged, float64(r.Acknowledged))
	if s := r.Source; s != nil {
		for outcome, n := range map[int]uint64{Hit: s.Hits, Miss: s.Misses, Failed: s.Failures} {
			counter(sourceKeys, float64(n), OutcomeNames[outcome])
		}
	}
}

// latencies returns the histogram of all requests.
func (r *Report) latencies() prometheus.Metric {
	sum, buckets := uint64(0), make(map[float64]uint64, Buckets)
	for i, n := range r.Latency {
		if sum += n; i < Buckets {
			buckets[float64(uint64(1)<<(FirstBucket+i))/1e9] = sum
		}
	}
	return prometheus.MustNewConstHistogram(latency, sum, float64(r.Nanos)/1e9, buckets)
}
