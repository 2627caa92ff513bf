package router

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/socket"
)

// handshake bounds how long a client may take for TLS.
const handshake = 10 * time.Second

const answerTooMany = "ERROR Too many open connections\r\n"

// accept gives each connection to a loop, in turn.
func (r *Router) accept(ctx context.Context, listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		switch {
		case err != nil && (r.ending.Load() || ctx.Err() != nil):
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen for clients: %w", err)
		case err != nil:
			r.config.Logf("accept: %v", err)
			pause(ctx, tick) // no file descriptors are left, for example
			continue
		}
		if r.connections.Add(1) > int64(r.config.MaxConnections) {
			r.connections.Add(-1)
			_ = conn.SetDeadline(time.Now().Add(tick))
			_, _ = io.WriteString(conn, answerTooMany)
			_ = conn.Close()
			continue
		}
		if r.config.TLS != nil {
			go r.secure(ctx, conn)
			continue
		}
		r.give(ctx, conn)
	}
}

// secure speaks TLS with a client.
func (r *Router) secure(ctx context.Context, conn net.Conn) {
	config, err := r.config.TLS()
	if err != nil {
		r.config.Logf("TLS with clients: %v", err)
		r.refuse(conn)
		return
	}
	secured := tls.Server(conn, config)
	bounded, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if secured.HandshakeContext(bounded) != nil {
		r.refuse(conn)
		return
	}
	r.give(ctx, &carried{Conn: secured, closed: func() { r.connections.Add(-1) }})
}

// carried is a connection that goroutines carry. It counts until it is closed.
type carried struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *carried) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}

func (r *Router) refuse(conn net.Conn) {
	_ = conn.Close()
	r.connections.Add(-1)
}

// give a connection to a loop.
func (r *Router) give(ctx context.Context, conn net.Conn) {
	_, isCarried := conn.(*carried)
	fd, err := socket.HandOver(ctx, conn)
	if err != nil {
		r.config.Logf("take a connection: %v", err)
		if !isCarried {
			r.connections.Add(-1)
		}
		return
	}
	l := r.loops[int(r.accepted.Add(1))%len(r.loops)]
	if !l.poller.Post(func() { l.accept(fd, isCarried) }) {
		_ = unix.Close(fd)
		if !isCarried {
			r.connections.Add(-1)
		}
	}
}
