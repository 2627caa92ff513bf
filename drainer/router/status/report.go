package status

import (
	"bufio"
	"fmt"
	"io"

	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router/wire"
)

// Report is what a router tells Prometheus. There are no keys in it: they may be secrets, and they
// are without bound.
type Report struct {
	Counts
	// Clients that are connected.
	Clients int64
	// Held for clients and members, in bytes.
	Held    int
	Members []Member
	// Table and State of the rings, and the number of the table that was acknowledged.
	Table        int64
	State        ringchange.State
	Acknowledged int64
}

// Member of the rings.
type Member struct {
	Name        string
	Connections int
	Traffic     Traffic
}

// Write writes Prometheus' text format.
func (r *Report) Write(to io.Writer) {
	w := bufio.NewWriter(to)
	defer w.Flush()
	p := printer{w}
	r.requests(p)
	p.one("failed_reads_missed_total", "counter", "Reads that failed, because the member could not be asked for example, and were answered as misses. They are errors among the requests.", r.Missed)
	p.one("request_bytes_total", "counter", "Bytes that applications have sent.", r.Received)
	p.one("answer_bytes_total", "counter", "Bytes of answers.", r.Sent)
	p.one("connections", "gauge", "Connections of applications.", r.Clients)
	p.one("held_bytes", "gauge", "What is kept: requests that are not complete or that members have not taken, answers that applications have not taken, and what connections by TLS or in the binary protocol take.", r.Held)
	r.members(p)
	p.head("ring_table", "gauge", "Number of the table of the rings.")
	p.value("ring_table", fmt.Sprintf("state=%q", r.State), r.Table)
	p.one("ring_table_acknowledged", "gauge", "Number of the table that all requests under way began with.", r.Acknowledged)
}

type printer struct{ w io.Writer }

func (p printer) head(name, kind, help string) {
	fmt.Fprintf(p.w, "# HELP memcached_router_%s %s\n# TYPE memcached_router_%s %s\n", name, help, name, kind)
}

func (p printer) value(name, labels string, value any) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p.w, "memcached_router_%s%s %v\n", name, labels, value)
}

// one is a metric without labels.
func (p printer) one(name, kind, help string, value any) {
	p.head(name, kind, help)
	p.value(name, "", value)
}

func (r *Report) requests(p printer) {
	p.head("requests_total", "counter", "Requests that were answered; each key of a read is one.")
	for state := range States {
		for v := range wire.Verbs {
			for o, n := range r.Requests[state][v] {
				if n > 0 {
					p.value("requests_total", fmt.Sprintf("command=%q,outcome=%q,state=%q", v, OutcomeNames[o], state), n)
				}
			}
		}
	}
	p.head("request_seconds", "histogram", "From a request's arrival to the end of its answer.")
	var sum uint64
	for i, n := range r.Latency {
		sum += n
		if i < Buckets {
			p.value("request_seconds_bucket", fmt.Sprintf("le=\"%g\"", float64(uint64(1)<<(FirstBucket+i))/1e9), sum)
		}
	}
	p.value("request_seconds_bucket", `le="+Inf"`, sum)
	p.value("request_seconds_sum", "", float64(r.Nanos)/1e9)
	p.value("request_seconds_count", "", sum)
}

func (r *Report) members(p printer) {
	each := func(name, kind, help string, value func(m *Member) any) {
		p.head(name, kind, help)
		for i := range r.Members {
			p.value(name, fmt.Sprintf("member=%q", r.Members[i].Name), value(&r.Members[i]))
		}
	}
	p.head("member_requests_total", "counter", "Requests to a member that were answered; a ring change makes several of one.")
	for i := range r.Members {
		for o, n := range r.Members[i].Traffic.Requests {
			p.value("member_requests_total", fmt.Sprintf("member=%q,outcome=%q", r.Members[i].Name, OutcomeNames[o]), n)
		}
	}
	each("member_request_seconds_total", "counter", "Time that a member's requests took in all, with the client's part.", func(m *Member) any { return float64(m.Traffic.Nanos) / 1e9 })
	each("member_sent_bytes_total", "counter", "Bytes that a member was sent.", func(m *Member) any { return m.Traffic.Sent })
	each("member_received_bytes_total", "counter", "Bytes that a member has answered.", func(m *Member) any { return m.Traffic.Received })
	each("member_connections", "gauge", "Connections to a member, one for each thread.", func(m *Member) any { return m.Connections })
}
