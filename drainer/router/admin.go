package router

import (
	"encoding/json"
	"io"
	"net/http"

	"example.com/memcached-operator/drainer/router/meter"
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
	number, _ := r.Acknowledged()
	t := r.table.Load()
	report := meter.Report{Counts: r.counts(), Clients: r.connections.Load(), Held: r.held(), Members: r.members(),
		Table: t.Number, State: t.State, Acknowledged: number}
	report.Write(to)
}

func (r *Router) held() (sum int) {
	for _, l := range r.loops {
		l.published.mu.Lock()
		sum += l.published.held
		l.published.mu.Unlock()
	}
	return sum
}

func (r *Router) members() (all []meter.Member) {
	for _, s := range r.table.Load().Servers() {
		sum := meter.Member{Name: s.String()}
		for _, l := range r.loops {
			l.published.mu.Lock()
			if m, ok := l.published.members[s.Address()]; ok {
				sum.Traffic.Add(&m.traffic)
				if m.why == "" {
					sum.Connections++
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
