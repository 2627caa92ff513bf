package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"example.com/memcached-operator/test/internal/harness"
)

// child is a program that runs beside the benchmark, and never outlives the benchmark.
type child struct {
	*harness.Process
	name, log string
}

// start runs the program; its output goes to NAME.log in the directory.
func start(dir, name string, env []string, args ...string) (*child, error) {
	c := &child{name: name, log: filepath.Join(dir, name+".log")}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	program, err := filepath.Abs(args[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A benchmark that is interrupted at the terminal ends them itself, in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Process, err = harness.Start(cmd)
	return c, err
}

// ended returns an error when the child has ended by itself.
func (c *child) ended() error {
	if err := c.Ended(); err != nil {
		return fmt.Errorf("%w: %s", err, c.tail())
	}
	return nil
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

// stop ends this child.
func (c *child) stop() {
	if c != nil {
		_ = c.End(syscall.SIGTERM, 10*harness.Patience) // the API server waits for requests
	}
}
