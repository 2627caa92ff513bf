package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/linux"
)

// Process is a program that was started here.
type Process struct {
	Cmd  *exec.Cmd
	done chan struct{}
	err  error // when done
}

// Start starts a command. The kernel kills it when this program ends, unless the command has attributes of
// its own.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = linux.DiesWithParent()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{Cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.Cmd.Process.Pid }

// Ended returns an error if the process has ended.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended (%w)", p.Cmd.Path, p.err)
	default:
		return nil
	}
}

// Ready waits until a try succeeds. If none does, Ready kills the process.
func (p *Process) Ready(ctx context.Context, limit time.Duration, try func() error) error {
	const interval = 2 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := Until(ctx, interval, fmt.Sprintf("%v answers", p.Cmd.Args), func() error {
		err := try()
		if err == nil {
			return nil
		}
		if ended := p.Ended(); ended != nil {
			return Never(ended)
		}
		return err
	})
	if err != nil {
		p.Kill()
	}
	return err
}

// Kill ends the process and waits for that.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// End sends a signal and waits. If the process runs on, End kills it.
func (p *Process) End(signal syscall.Signal, limit time.Duration) error {
	if err := p.Cmd.Process.Signal(signal); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%v did not end", p.Cmd.Args)
	}
}

// FreePort returns a loopback port on which no process listens.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Loopback is the address of a port on this machine.
func Loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// MemcachedArgs are those of a memcached on a loopback port, with so much memory for items, in MiB.
func MemcachedArgs(port, memory int, more ...string) []string {
	args := []string{"-l", "127.0.0.1", "-U", "0", "-p", strconv.Itoa(port), "-m", strconv.Itoa(memory)}
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	return append(args, more...)
}
