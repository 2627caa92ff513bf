package eventloop_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/test/wait"
)

// serve serves clients until the test ends, and returns the address.
func serve(t *testing.T, c *eventloop.Clients) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ending atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(context.Background(), listener, ending.Load) }()
	t.Cleanup(func() {
		ending.Store(true)
		listener.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(wait.Deadline())
	return c
}

func TestOneMoreThanMayBeIsToldAndClosed(t *testing.T) {
	t.Parallel()
	given := make(chan int, 1)
	c := &eventloop.Clients{Most: 1, Logf: t.Logf, Give: func(_ int64, fd int, carried bool) bool {
		if carried {
			t.Error("goroutines carry a connection in plain text")
		}
		given <- fd
		return true
	}}
	address := serve(t, c)
	dial(t, address)
	fd := <-given
	if said, err := io.ReadAll(dial(t, address)); err != nil || string(said) != "ERROR Too many open connections\r\n" {
		t.Errorf("%q, %v", said, err)
	}
	if c.Connected() != 1 || c.Accepted() != 1 {
		t.Errorf("%d are connected, of %d", c.Connected(), c.Accepted())
	}
	_ = unix.Close(fd)
	c.Gone()
	dial(t, address)
	_ = unix.Close(<-given)
	if c.Connected() != 1 || c.Accepted() != 2 {
		t.Errorf("%d are connected, of %d", c.Connected(), c.Accepted())
	}
}

// A TLS client would take the answer for a record that is no TLS.
func TestOneMoreTLSClientThanMayBeIsClosedWithoutAWord(t *testing.T) {
	t.Parallel()
	c := &eventloop.Clients{Most: 0, Logf: t.Logf, TLS: func() (*tls.Config, error) { return nil, io.EOF }}
	if said, err := io.ReadAll(dial(t, serve(t, c))); err != nil || len(said) > 0 {
		t.Errorf("%q, %v", said, err)
	}
	if c.Connected() != 0 || c.Bytes() != 0 {
		t.Errorf("%d are connected, with %d bytes", c.Connected(), c.Bytes())
	}
}

func TestAConnectionThatNoLoopTakesIsClosedAndNotCounted(t *testing.T) {
	t.Parallel()
	c := &eventloop.Clients{Most: 1, Logf: t.Logf, Give: func(int64, int, bool) bool { return false }}
	address := serve(t, c)
	for range 3 {
		if said, err := io.ReadAll(dial(t, address)); err != nil || len(said) > 0 {
			t.Errorf("%q, %v", said, err)
		}
		wait.For(t, "it not to be counted", func() error {
			if n := c.Connected(); n != 0 {
				return fmt.Errorf("%d are connected", n)
			}
			return nil
		})
	}
}

// pipes is a listener that accepts one connection, whose other end reads nothing ahead.
type pipes struct {
	net.Listener
	conns chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

// A client that announces a long handshake is closed before it has all arrived: there may be as many such
// clients as the memory has room for idle ones.
func TestALongHandshakeIsNotKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		auth tls.ClientAuthType
		most int
	}{"plain": {tls.NoClientCert, 16 << 10}, "with a certificate": {tls.RequireAnyClientCert, 32 << 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := net.Pipe()
			listener := &pipes{conns: make(chan net.Conn, 1)}
			listener.conns <- server
			close(listener.conns)
			c := &eventloop.Clients{Most: 1, MostBytes: 1 << 20, Logf: t.Logf, TLS: func() (*tls.Config, error) { return &tls.Config{ClientAuth: test.auth}, nil }}
			_ = c.Serve(context.Background(), listener, func() bool { return false })
			_ = client.SetDeadline(wait.Deadline())
			const announced, record = 65_000, 1000
			hello := append([]byte{1, 0, announced >> 8, announced & 0xff}, make([]byte, announced)...)
			taken := 0
			for len(hello) > 0 && taken < 60_000 {
				n := min(record, len(hello))
				sent, err := client.Write(append([]byte{22, 3, 1, byte(n >> 8), byte(n & 0xff)}, hello[:n]...))
				taken += sent
				if err != nil {
					break
				}
				hello = hello[n:]
			}
			if taken > test.most {
				t.Errorf("%d bytes of a handshake were taken, want %d at most", taken, test.most)
			}
		})
	}
}
