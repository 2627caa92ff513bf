package cli

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

const (
	// tablesAtOnce bounds the tables that are read or taken at the same time. Tables may be large, and any client
	// can send one.
	tablesAtOnce = 4
	// tableTimeout is how long a table may take to arrive.
	tableTimeout = time.Second
)

// arriving are the requests with a table. If there are too many, the one that has been arriving for the
// longest time is given up: the operator sends its table at once, so slow clients can't keep it out.
type arriving struct {
	mu  sync.Mutex
	all []*arrival // the oldest first
}

// arrival is one request.
type arrival struct {
	response *http.ResponseController
	here     bool // it has arrived
}

// begin returns nil if too many requests have arrived.
func (a *arriving) begin(w http.ResponseWriter) *arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= tablesAtOnce {
		oldest := slices.IndexFunc(a.all, func(r *arrival) bool { return !r.here })
		if oldest < 0 {
			return nil
		}
		_ = a.all[oldest].response.SetReadDeadline(time.Unix(1, 0))
		a.all = slices.Delete(a.all, oldest, oldest+1)
	}
	r := &arrival{response: http.NewResponseController(w)}
	_ = r.response.SetReadDeadline(time.Now().Add(tableTimeout))
	a.all = append(a.all, r)
	return r
}

// read returns the table of a request.
func (a *arriving) read(r *arrival, w http.ResponseWriter, q *http.Request) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, q.Body, contract.MaxRingTable))
	a.mu.Lock()
	defer a.mu.Unlock()
	r.here = true
	return text, err
}

func (a *arriving) end(r *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = slices.DeleteFunc(a.all, func(other *arrival) bool { return other == r })
}
