package main

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/internal/harness"
)

// server is a memcached of this run.
type server struct {
	*harness.Process
	port int
	// child is the memcached of a supervisor; 0 if there is none. export is where the
	// supervisor streams items.
	child, export int
}

// start runs a program that makes memcached listen on port, and waits until it
// answers.
func start(ctx context.Context, port int, program string, args ...string) (*server, error) {
	s, err := launch(io.Discard, port, program, args...)
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx, harness.Patience)
}

// launch starts a program, whose log goes to out.
func launch(out io.Writer, port int, program string, args ...string) (*server, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = out
	p, err := harness.Start(cmd)
	return &server{Process: p, port: port}, err
}

// ready waits until memcached answers.
func (s *server) ready(ctx context.Context, limit time.Duration) error {
	return s.Ready(ctx, limit, func() error {
		_, err := s.items(ctx)
		return err
	})
}

// memcached starts one with so much memory for items, in MiB.
func memcached(ctx context.Context, memory int, args ...string) (*server, error) {
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, port, "memcached", harness.MemcachedArgs(port, memory, args...)...)
}

// memcached is the id of its process.
func (s *server) memcached() int {
	if s.child != 0 {
		return s.child
	}
	return s.PID()
}

func (s *server) address() string { return harness.Loopback(s.port) }

// items that the server has.
func (s *server) items(ctx context.Context) (int, error) {
	c, err := memcache.Dial(ctx, s.address())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(harness.Patience))
	stats, err := c.Stats("")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(stats["curr_items"])
}

// fleet is some servers.
type fleet []*server

func newFleet(ctx context.Context, n, memory int) (fleet, error) {
	var f fleet
	for range n {
		s, err := memcached(ctx, memory)
		if err != nil {
			f.kill()
			return nil, err
		}
		f = append(f, s)
	}
	return f, nil
}

func (f fleet) kill() {
	for _, s := range f {
		s.Kill()
	}
}

// meter measures the servers' CPU time from now on.
func (f fleet) meter() *harness.Meter {
	var pids []int
	for _, s := range f {
		pids = append(pids, s.memcached())
	}
	return harness.StartMeter(pids...)
}

// supervisors are the processes that stream.
func (f fleet) supervisors() (pids []int) {
	for _, s := range f {
		if s.child != 0 {
			pids = append(pids, s.PID())
		}
	}
	return pids
}

func (f fleet) items(ctx context.Context) (int, error) {
	sum := 0
	for _, s := range f {
		n, err := s.items(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// client is the cheapest routing: it goes by the servers' order alone.
const client = "memcached-proxy"

func (f fleet) owner() (routing.Owner, error) {
	var list []routing.Server
	for _, s := range f {
		list = append(list, routing.Server{Host: "127.0.0.1", Port: uint16(s.port)})
	}
	return routing.New(client, list)
}
