package router

import (
	"errors"
	"net/http"

	"example.com/memcached-operator/drainer/router/status"
)

// Ready returns why clients should not use this router; nil if they can.
func (r *Router) Ready() error {
	if r.ending.Load() {
		return errors.New("it is shutting down")
	}
	if err := r.fence.Ready(); err != nil {
		return err
	}
	return r.boards().Ready(r.table.Load().Servers())
}

// boards returns the boards of all loops, which are a moment old.
func (r *Router) boards() (all status.Boards) {
	for _, l := range r.loops {
		all = append(all, &l.published)
	}
	return all
}

// Unanswered returns the number of requests that members had been sent and had not answered, a moment ago.
func (r *Router) Unanswered() int { return r.boards().Unanswered() }

// HotKeys returns the keys that were asked for most, in the last minute or so.
func (r *Router) HotKeys() []status.HotKey { return r.boards().HotKeys() }

// Report returns the router's metrics, which are a moment old.
func (r *Router) Report() *status.Report {
	number, _ := r.Acknowledged()
	t, all := r.table.Load(), r.boards()
	var source *status.Source
	if r.source != nil {
		counts := status.Source(r.source.Counts())
		source = &counts
	}
	return &status.Report{Source: source, Counts: all.Counts(), Clients: r.clients.Connected(), Held: all.Held(), Members: all.Members(t.Servers()),
		Table: t.Number, State: t.State, Acknowledged: number}
}

// Admin serves /ready, /metrics in Prometheus' text format, and /hot with the keys that are asked for most,
// in JSON.
func (r *Router) Admin() http.Handler { return status.Handler(r) }

const answerNoMember = "SERVER_ERROR no member is available\r\n"

// memberVersion returns the version that a member has reported.
func (r *Router) memberVersion() string {
	if v := r.version.Load(); v != nil {
		return "VERSION " + *v + "\r\n"
	}
	return answerNoMember
}
