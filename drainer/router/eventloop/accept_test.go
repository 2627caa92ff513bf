package eventloop_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/test/wait"
)

// serve clients until the test ends, and return where.
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
