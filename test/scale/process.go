package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"example.com/memcached-operator/drainer/linux"
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
	// A benchmark that is killed takes its children with it; one that is
	// interrupted at the terminal ends them itself, in order.
	c.cmd.SysProcAttr = linux.DiesWithParent()
	c.cmd.SysProcAttr.Setpgid = true
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
func (c *child) stop() error {
	if c == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return nil
	case <-time.After(15 * time.Second):
	}
	_ = c.cmd.Process.Kill()
	<-c.done
	return errors.New(c.name + " did not end within 15 s of SIGTERM")
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

// scratchPrefix names the directories of this benchmark.
const scratchPrefix = "memcached-operator-scale-"

// scratch makes a directory, and removes those of benchmarks that were killed:
// each holds a lock while it runs.
func scratch() (dir string, remove func(), err error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	for _, d := range old {
		if lock, err := lockDir(d); err == nil {
			_ = os.RemoveAll(d)
			_ = lock.Close()
		}
	}
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}, nil
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
