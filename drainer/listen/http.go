package listen

import (
	"bytes"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HTTP is served to the kubelet, to Prometheus and to the operator, from processes that share a container's memory
// with a cache. Any pod of the cluster may be able to connect, so the number of connections, their duration and the
// size of headers are bounded.
const (
	// most bounds the number of open connections. Each may take about 20 KiB.
	most = 64
	// patience bounds how long a client may take to send a request, to read the answer, and between requests.
	patience = 10 * time.Second
	// header bounds the size of a request's header, in bytes.
	header = 16 << 10
	// scrapes bounds the number of answers with metrics that are being made.
	scrapes = 2
	// untaken bounds the number of such answers that are kept until their clients have read them. Each may take 200 KiB.
	untaken = 8
)

// HTTP returns a server with these bounds. It has to serve a Bounded listener.
func HTTP(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: header}
}

// Metrics serves what collect sends at the moment of a request, in Prometheus' text format. A client that doesn't read
// its answer keeps no other one out.
func Metrics(collect func(to chan<- prometheus.Metric)) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(collect))
	made := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes})
	var readers readers
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answer{ResponseWriter: w, code: http.StatusOK}
		made.ServeHTTP(&a, r)
		defer readers.begin(http.NewResponseController(w))()
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body.Bytes())
	})
}

// answer keeps what is to be sent.
type answer struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// readers are the clients that are being sent an answer, the oldest first.
type readers struct {
	mu  sync.Mutex
	all []*http.ResponseController
}

// begin ends the oldest answer if there are too many. The returned function is called when this one is sent.
func (r *readers) begin(reader *http.ResponseController) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == untaken {
		_ = r.all[0].SetWriteDeadline(time.Now())
		r.all = r.all[1:]
	}
	r.all = append(r.all, reader)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = slices.DeleteFunc(r.all, func(o *http.ResponseController) bool { return o == reader })
	}
}

type collector func(to chan<- prometheus.Metric)

// Describe sends nothing: which metrics there are may be another at each request.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(to chan<- prometheus.Metric) { c(to) }

// Bounded returns a listener with few open connections: when another one comes, it closes the oldest. So the
// kubelet is served while another client holds connections open.
func Bounded(l net.Listener) net.Listener { return &bounded{Listener: l} }

type bounded struct {
	net.Listener
	mu   sync.Mutex
	open []*conn // the oldest first
}

// Accept fails only when the listener is closed: any other error would end net/http's server, and with it the process.
func (l *bounded) Accept() (net.Conn, error) {
	accepted, err := Accept(l.Listener, nil)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, of: l}
	l.mu.Lock()
	var oldest *conn
	if len(l.open) == most {
		oldest = l.open[0]
	}
	l.open = append(l.open, c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return c, nil
}

// conn counts as open until it is closed.
type conn struct {
	net.Conn
	of *bounded
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(o *conn) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
