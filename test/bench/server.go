package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/linux"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/routing"
)

// patience bounds each wait for a process.
const patience = time.Minute

// server is a memcached of this run.
type server struct {
	port int
	// child is the memcached of a supervisor; 0 if there is none. export is where the
	// supervisor streams items.
	child, export int
	cmd           *exec.Cmd
	done          chan struct{}
}

// start runs a program that makes memcached listen on port, and waits until it
// answers. The process dies with this one.
func start(ctx context.Context, port int, program string, args ...string) (*server, error) {
	s, err := launch(io.Discard, port, program, args...)
	if err != nil {
		return nil, err
	}
	return s, s.ready(ctx, patience)
}

// launch starts a program, whose log goes to out.
func launch(out io.Writer, port int, program string, args ...string) (*server, error) {
	s := &server{port: port, cmd: exec.Command(program, args...), done: make(chan struct{})}
	s.cmd.Stderr = out
	s.cmd.SysProcAttr = linux.DiesWithParent()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// ready waits until memcached answers.
func (s *server) ready(ctx context.Context, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		_, err := s.items(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%v ended: %v", s.cmd.Args, s.cmd.ProcessState)
		default:
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			s.kill()
			return fmt.Errorf("%v doesn't answer: %w", s.cmd.Args, err)
		}
	}
}

// memcached starts one with so much item memory, in MiB.
func memcached(ctx context.Context, memory int, args ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return start(ctx, port, "memcached", append(memcachedArgs(port, memory), args...)...)
}

func memcachedArgs(port, memory int) []string {
	args := []string{"-l", "127.0.0.1", "-U", "0", "-p", strconv.Itoa(port), "-m", strconv.Itoa(memory)}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	return args
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// memcached is the id of its process.
func (s *server) memcached() int {
	if s.child != 0 {
		return s.child
	}
	return s.cmd.Process.Pid
}

func (s *server) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// items that the server has.
func (s *server) items(ctx context.Context) (int, error) {
	c, err := memcache.Dial(ctx, s.address())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	stats, err := c.Stats("")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(stats["curr_items"])
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// end sends a signal and waits.
func (s *server) end(signal syscall.Signal) error { return s.endWithin(signal, patience) }

func (s *server) endWithin(signal syscall.Signal, limit time.Duration) error {
	if err := s.cmd.Process.Signal(signal); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-time.After(limit):
		s.kill()
		return fmt.Errorf("%v did not end", s.cmd.Args)
	}
}

// fleet is some servers that start empty.
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
		s.kill()
	}
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

// client is the routing in the benchmark: the cheapest one, by the servers'
// order alone.
const client = "memcached-proxy"

func (f fleet) owner() (routing.Owner, error) {
	var list []routing.Server
	for _, s := range f {
		list = append(list, routing.Server{Host: "127.0.0.1", Port: uint16(s.port)})
	}
	return routing.New(client, list)
}
