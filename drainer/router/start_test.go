package router_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

func TestMain(m *testing.M) { memcachedtest.Main(m, 4) }

// running is a router in front of members.
type running struct {
	*router.Router
	address string
	stop    context.CancelFunc // has the effect of SIGTERM
	ended   chan error
}

// ring returns the ring of the members in this order.
func ring(t testing.TB, members ...*memcachedtest.Server) (r router.Ring) {
	t.Helper()
	for _, m := range members {
		r.Servers = append(r.Servers, routing.Server{Host: "127.0.0.1", Port: uint16(m.Port)})
	}
	var err error
	if r.Owner, err = routing.New("pymemcache", r.Servers); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a router, and ends it with the test.
func start(t testing.TB, config router.Config, members ...*memcachedtest.Server) *running {
	t.Helper()
	if config.Table == nil {
		config.Table = &router.Table{New: ring(t, members...)}
	}
	r := launch(t, config)
	wait.For(t, "the router to be ready", r.Ready)
	return r
}

// launch is start with any table, and without waiting.
func launch(t testing.TB, config router.Config) *running {
	t.Helper()
	var err error
	if config.Loops == 0 {
		config.Loops = 2
	}
	// A busy machine delays members; a test of the router's patience sets its own. Reads wait for an eighth of it.
	if config.MemberTimeout == 0 {
		config.MemberTimeout = 8 * time.Minute
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = time.Minute
	}
	if config.Logf == nil {
		config.Logf = func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "router: "+format+"\n", args...)
		}
	}
	r := &running{ended: make(chan error, 1)}
	if r.Router, err = router.New(config); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- r.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.ended:
			if err != nil {
				t.Error(err)
			}
		case <-wait.Over():
			t.Error("the router does not end")
		}
	})
	return r
}

// conversation is a connection for raw bytes.
type conversation struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(t testing.TB, address string) *conversation {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return over(t, conn)
}

func over(t testing.TB, conn net.Conn) *conversation {
	return &conversation{conn, t, bufio.NewReaderSize(conn, 1<<20)}
}

func (c *conversation) say(text string) {
	c.t.Helper()
	_ = c.SetDeadline(wait.Deadline())
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// until returns the text up to this line, without the line.
func (c *conversation) until(last string) string {
	c.t.Helper()
	var b strings.Builder
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("after %.200q: %v", b.String()+line, err)
		}
		if line == last+"\r\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// ask sends text, and returns the whole answer.
func (c *conversation) ask(text string) string {
	c.t.Helper()
	c.say(text + "mn\r\n")
	return c.until("MN")
}

// want fails the test if the answer is another one.
func (c *conversation) want(text, answer string) {
	c.t.Helper()
	if got := c.ask(text); got != answer {
		c.t.Fatalf("%.100q: %.300q, want %.300q", text, got, answer)
	}
}

func members(t testing.TB, n int, args ...string) (all []*memcachedtest.Server) {
	t.Helper()
	for range n {
		all = append(all, memcachedtest.Start(t, args...))
	}
	return all
}
