package listen

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

const (
	// between is the shortest time between two collections of metrics, however many clients ask how often.
	between = time.Second / 4
	// untaken bounds the number of answers that are kept until all their clients have read them. Each may take 200 KiB.
	untaken = 8
)

// Metrics serves what collect sends, in Prometheus' text format. All clients that wait get the same answer, which is
// collected after they have asked. A client that doesn't read its answer keeps no other one out.
func Metrics(collect func(to chan<- prometheus.Metric)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(collect))
	return &metrics{from: registry, turn: make(chan struct{}, 1), last: &answer{}}
}

type metrics struct {
	from prometheus.Gatherer
	// turn has an element while a client looks at last, or makes another one.
	turn chan struct{}
	last *answer
	sent sent
}

// answer is the result of one collection.
type answer struct {
	begun time.Time
	body  bytes.Buffer
	err   error
	// readers are being sent it.
	readers []*http.ResponseController
}

var textFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

func (m *metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := m.answer(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer m.sent.begin(a, http.NewResponseController(w))()
	w.Header().Set("Content-Type", string(textFormat))
	_, _ = w.Write(a.body.Bytes())
}

// answer returns one whose collection begins after this call.
func (m *metrics) answer(ctx context.Context) (*answer, error) {
	asked := time.Now()
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.last.begun.After(asked) {
		return m.last, m.last.err
	}
	select {
	case <-time.After(time.Until(m.last.begun.Add(between))):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.last = &answer{begun: time.Now()}
	m.last.err = m.last.collect(m.from)
	return m.last, m.last.err
}

func (a *answer) collect(from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(&a.body, textFormat)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// sent are the answers that clients are being sent, the oldest first.
type sent struct {
	mu  sync.Mutex
	all []*answer
}

// begin ends the oldest answer if there are too many. The returned function is called when this client has it.
func (s *sent) begin(a *answer, reader *http.ResponseController) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.all, a) {
		if len(s.all) == untaken {
			for _, r := range s.all[0].readers {
				_ = r.SetWriteDeadline(time.Now())
			}
			s.all = s.all[1:]
		}
		s.all = append(s.all, a)
	}
	a.readers = append(a.readers, reader)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.readers = slices.DeleteFunc(a.readers, func(o *http.ResponseController) bool { return o == reader })
		if len(a.readers) == 0 {
			s.all = slices.DeleteFunc(s.all, func(o *answer) bool { return o == a })
		}
	}
}

type collector func(to chan<- prometheus.Metric)

// Describe sends nothing, because the metrics may be others at each request.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }
