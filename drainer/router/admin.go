package router

import (
	"errors"
	"net/http"

	"example.com/memcached-operator/drainer/router/status"
	"example.com/memcached-operator/drainer/router/wire"
)

// Ready says why clients should not be sent here, if so.
func (r *Router) Ready() error {
	if r.ending.Load() {
		return errors.New("it is about to end")
	}
	if err := r.fence.Ready(); err != nil {
		return err
	}
	return r.boards().Ready(r.table.Load().Servers())
}

// boards of all loops, a moment old.
func (r *Router) boards() (all status.Boards) {
	for _, l := range r.loops {
		all = append(all, &l.published)
	}
	return all
}

// Unanswered is the number of requests that members have been sent, and not answered, a
// moment ago.
func (r *Router) Unanswered() int { return r.boards().Unanswered() }

// HotKeys are those that are asked for most, in the last minute or so.
func (r *Router) HotKeys() []status.HotKey { return r.boards().HotKeys() }

// Report has the router's metrics, which are a moment old.
func (r *Router) Report() *status.Report {
	number, _ := r.Acknowledged()
	t, all := r.table.Load(), r.boards()
	return &status.Report{Counts: all.Counts(), Clients: r.clients.Connected(), Held: all.Held(), Members: all.Members(t.Servers()),
		Table: t.Number, State: t.State, Acknowledged: number}
}

// Admin answers /ready, /metrics in Prometheus' text format, and /hot with the keys that
// are asked for most, in JSON.
func (r *Router) Admin() http.Handler { return status.Handler(r) }

// memberVersion is what a member has said.
func (r *Router) memberVersion() string {
	if v := r.version.Load(); v != nil {
		return "VERSION " + *v + "\r\n"
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
	s := status.Statistics{Began: r.began, Version: r.memberVersion(), Connected: r.clients.Connected(), Accepted: r.clients.Accepted(),
		Threads: len(r.loops), Counts: r.boards().Counts()}
	return s.Answer()
}
