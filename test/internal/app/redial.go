package app

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// redialer makes connections as a library does that dials anew when a server has closed a connection: it sends
// a request again if no byte of its answer has come. This is right only if the server answers all that it has
// read before it closes, as a router does that is told to end. If a server had carried a request out without an
// answer, the application would notice: an incr counts twice, and a second add or delete is refused.
type redialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// resent is how many requests were sent again.
	resent atomic.Int64
}

// attempts is how often one request is sent at most.
const attempts = 4

func (r *redialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &redialed{Conn: conn, redialer: r, network: network, address: address}, nil
}

// redialed is a connection for one request at a time.
type redialed struct {
	net.Conn
	*redialer
	network, address string
	deadline         time.Time
	// request was written last. answered is set if bytes of its answer have come.
	request  []byte
	answered bool
}

// SetDeadline also holds for later connections.
func (c *redialed) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
}

// Write returns no error if the server has closed the connection: Read finds that.
func (c *redialed) Write(b []byte) (int, error) {
	if c.answered {
		c.request, c.answered = c.request[:0], false
	}
	c.request = append(c.request, b...)
	if _, err := c.Conn.Write(b); err != nil && !closedByPeer(err) {
		return 0, err
	}
	return len(b), nil
}

func (c *redialed) Read(b []byte) (int, error) {
	for attempt := 1; ; attempt++ {
		n, err := c.Conn.Read(b)
		unanswered := n == 0 && !c.answered && len(c.request) > 0
		c.answered = c.answered || n > 0
		if err == nil || !unanswered || !closedByPeer(err) || attempt == attempts {
			return n, err
		}
		if err := c.sendAgain(); err != nil {
			return 0, err
		}
	}
}

func (c *redialed) sendAgain() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := c.dial(ctx, c.network, c.address)
	if err != nil {
		return err
	}
	_ = c.Close()
	c.Conn = conn
	c.resent.Add(1)
	if err := conn.SetDeadline(c.deadline); err != nil {
		return err
	}
	if _, err := conn.Write(c.request); err != nil && !closedByPeer(err) {
		return err
	}
	return nil
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
