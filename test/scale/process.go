package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// child is a program that runs beside the benchmark, and never outlives it.
type child struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // once done
}

// start runs the program; its output goes to NAME.log in the directory.
func start(dir, name string, env []string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	program, err := filepath.Abs(args[0])
	if err != nil {
		return nil, err
	}
	c.cmd = exec.Command(program, args[1:]...)
	c.cmd.Dir = dir
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{
		// A benchmark that is interrupted at the terminal ends them itself, in order.
		Setpgid: true,
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// ended returns an error when the child has ended by itself.
func (c *child) ended() error {
	select {
	case <-c.done:
		return fmt.Errorf("%s ended (%w): %s", c.name, c.err, c.tail())
	default:
		return nil
	}
}

// tail is the end of the child's log.
func (c *child) tail() string {
	log, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	log = log[max(0, len(log)-2000):]
	return string(log[bytes.IndexByte(log, '\n')+1:])
}

// stop ends exactly this child.
func (c *child) stop() {
	if c == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.done
}

// freePort is a loopback port that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
