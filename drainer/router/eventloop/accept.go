package eventloop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/listen"
)

const (
	// handshake bounds how long a client may take for TLS.
	handshake = 10 * time.Second
	// refusal bounds the time for a refused client.
	refusal = 100 * time.Millisecond
)

// The memory of the goroutines that carry a connection, in bytes, with their stacks. The values for TLS are
// measured: of 2,000 idle connections, each takes 27 KiB of the process's memory, and 42 KiB after a value of
// 20,000 bytes has gone both ways.
const (
	// TLS is that of an idle TLS connection.
	TLS = 28 << 10
	// Records is added once the connection has sent a large record: crypto/tls keeps the buffer for it.
	Records = 16 << 10
	// Binary is that of a connection whose binary protocol is translated.
	Binary = 12 << 10
)

// The open files that a client's connection takes.
const (
	PlainFiles = 1
	// TLSFiles are the socket, and a pair for the loop.
	TLSFiles = 3
	// BinaryFiles is added if the binary protocol is translated: another pair.
	BinaryFiles = 2
)

// mostUnsent is how many bytes of answers the kernel keeps for a client before it sends them. Without a bound
// the kernel keeps up to 4 MiB for each client that doesn't read (tcp_wmem), which count in the memory of the
// router's container. Bytes that were sent and not acknowledged come on top; a client's own window bounds
// these.
const mostUnsent = 128 << 10

// boundUnsent sets mostUnsent. If the system doesn't support that, there is no bound.
func boundUnsent(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mostUnsent)
			})
		}
	}
}

// These bound the bytes that a client may send until the end of its handshake: crypto/tls keeps up to 64 KiB
// for a client that announces more, and up to 256 KiB for a client that is asked for its certificate. Real
// clients send far less.
const (
	mostHello = 16 << 10
	// mostCertificate has room for about ten certificates.
	mostCertificate = 32 << 10
)

const answerTooMany = "ERROR Too many open connections\r\n"

// Clients accepts and counts the connections of clients.
type Clients struct {
	// Most bounds the number of connections.
	Most int
	// MostBytes bounds the memory of the goroutines that carry connections. A connection that would exceed it
	// is refused.
	MostBytes int64
	// MostFiles is how many open files connections may take; 0 any number. A connection that would take more
	// is refused.
	MostFiles atomic.Int64
	// TLS of a connection that begins; nil for plain text.
	TLS func() (*tls.Config, error)
	// Give gives the n-th connection's socket to a loop; false if that has ended. carried means that
	// goroutines carry the client's data, and that the connection counts until they have closed it. Otherwise
	// the loop has to call Gone when it has closed it.
	Give func(n int64, fd int, carried bool) bool
	// LastWords is HalfClose's bound for connections that goroutines carry.
	LastWords time.Duration
	// Logf logs a line for people.
	Logf func(format string, args ...any)

	connected, accepted, bytes, files atomic.Int64
}

// Carry tells whether goroutines may carry a connection that takes n bytes, and so many more open files. If
// so, both are counted until Carried.
func (c *Clients) Carry(n, files int64) bool {
	if c.bytes.Add(n) > c.MostBytes || !c.open(files) {
		c.bytes.Add(-n)
		return false
	}
	return true
}

// Carried is called when goroutines no longer keep n bytes and so many open files.
func (c *Clients) Carried(n, files int64) {
	c.bytes.Add(-n)
	c.files.Add(-files)
}

// open tells whether so many more open files may be taken.
func (c *Clients) open(files int64) bool {
	if most := c.MostFiles.Load(); c.files.Add(files) > most && most > 0 {
		c.files.Add(-files)
		return false
	}
	return true
}

// Bytes returns how many bytes the goroutines use for connections.
func (c *Clients) Bytes() int64 { return c.bytes.Load() }

// Connected returns the number of connections.
func (c *Clients) Connected() int64 { return c.connected.Load() }

// Accepted returns how many connections there have been.
func (c *Clients) Accepted() int64 { return c.accepted.Load() }

// Gone is called when a client is not connected any more.
func (c *Clients) Gone() {
	c.connected.Add(-1)
	c.files.Add(-PlainFiles)
}

// come tells whether one more client may be connected.
func (c *Clients) come() bool {
	if c.connected.Add(1) > int64(c.Most) || !c.open(PlainFiles) {
		c.connected.Add(-1)
		return false
	}
	if c.TLS != nil && !c.Carry(TLS, TLSFiles-PlainFiles) {
		c.Gone()
		return false
	}
	return true
}

// Serve gives each connection to a loop, until the listener is closed after ctx has ended or ending returns
// true.
func (c *Clients) Serve(ctx context.Context, listener net.Listener, ending func() bool) error {
	for {
		conn, err := listen.Accept(listener, func(err error) { c.Logf("a client can't connect: %v", err) })
		switch {
		case err != nil && (ending() || ctx.Err() != nil):
			return nil
		case err != nil:
			return fmt.Errorf("listen for clients: %w", err)
		}
		boundUnsent(conn)
		if !c.come() {
			if c.TLS == nil {
				_ = conn.SetDeadline(time.Now().Add(refusal))
				_, _ = io.WriteString(conn, answerTooMany)
			}
			_ = conn.Close()
			continue
		}
		if c.TLS != nil {
			go c.secure(ctx, conn)
			continue
		}
		c.give(ctx, conn)
	}
}

// secure makes the TLS handshake with a client.
func (c *Clients) secure(ctx context.Context, conn net.Conn) {
	config, err := c.TLS()
	if err != nil {
		c.Logf("a client is refused, because TLS can't be used: %v", err)
		c.refuse(conn)
		return
	}
	greeting := &greeting{Conn: conn, left: mostHello}
	if config.ClientAuth != tls.NoClientCert {
		greeting.left = mostCertificate
	}
	secured := tls.Server(greeting, config)
	bounded, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if secured.HandshakeContext(bounded) != nil {
		c.refuse(conn)
		return
	}
	greeting.over = true
	c.give(ctx, &carried{Conn: secured, of: c})
}

// greeting bounds the bytes that a client sends until its handshake is over.
type greeting struct {
	net.Conn
	left int
	over bool
}

var errLongGreeting = errors.New("the client's handshake is too long")

func (g *greeting) Read(b []byte) (int, error) {
	if g.over {
		return g.Conn.Read(b)
	}
	if g.left == 0 {
		return 0, errLongGreeting
	}
	n, err := g.Conn.Read(b[:min(len(b), g.left)])
	g.left -= n
	return n, err
}

// carried is an encrypted connection that goroutines carry, and counts until it is closed.
type carried struct {
	net.Conn
	of     *Clients
	mu     sync.Mutex
	large  bool
	closed bool
}

// Large is called when the connection has sent a large record.
func (c *carried) Large() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.large && !c.closed {
		c.large = true
		c.of.bytes.Add(Records)
	}
}

// CloseWrite closes our side of the encrypted connection.
func (c *carried) CloseWrite() error { return c.Conn.(*tls.Conn).CloseWrite() }

func (c *carried) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return err
	}
	if c.closed = true; c.large {
		c.of.Carried(Records, 0)
	}
	c.of.Carried(TLS, TLSFiles-PlainFiles)
	c.of.Gone()
	return err
}

func (c *Clients) refuse(conn net.Conn) {
	_ = conn.Close()
	c.Carried(TLS, TLSFiles-PlainFiles)
	c.Gone()
}

// give gives a connection to a loop.
func (c *Clients) give(ctx context.Context, conn net.Conn) {
	_, isCarried := conn.(*carried)
	fd, err := HandOver(ctx, conn, c.LastWords)
	if err != nil {
		c.Logf("a client's connection can't be served: %v", err)
		if !isCarried {
			c.Gone()
		}
		return
	}
	if !c.Give(c.accepted.Add(1), fd, isCarried) {
		_ = unix.Close(fd)
		if !isCarried {
			c.Gone()
		}
	}
}
