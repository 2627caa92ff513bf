package listen

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
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
)

// HTTP returns a server with these bounds. The server has to serve a Bounded listener.
func HTTP(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: header}
}

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
