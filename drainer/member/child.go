package member

import (
	"os"
	"runtime"
	"syscall"

	"example.com/memcached-operator/drainer/linux"
)

// child is the supervised process. As process 1, the supervisor is also the parent of every orphan, and reaps
// them.
type child struct {
	pid    int
	exited chan syscall.WaitStatus
}

// startChild runs argv with this process's standard streams and, if inherited is not nil, that open file. The
// child is killed when this process dies, because it must not run without its supervisor.
func startChild(argv []string, inherited *os.File) (*child, error) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	if inherited != nil {
		files = append(files, inherited)
	}
	// With this, orphans become this process's children. If it fails, a process further up reaps them.
	_ = linux.AdoptOrphans()
	c := &child{exited: make(chan syscall.WaitStatus, 1)}
	started := make(chan error)
	go func() {
		// The death signal depends on the thread that starts the child, so that thread stays: it waits for
		// the child's end.
		runtime.LockOSThread()
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
			Files: files,
			Env:   os.Environ(),
			Sys:   linux.DiesWithParent(),
		})
		if err == nil {
			c.pid = p.Pid
		}
		started <- err
		if err == nil {
			c.reap()
		}
	}()
	return c, <-started
}

// reap collects every child that ends, and reports memcached's end.
func (c *child) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return // no children left
		}
		if pid == c.pid && (status.Exited() || status.Signaled()) {
			c.exited <- status
		}
	}
}

// signal sends a signal. signal ignores the error, which only means that the child has ended; reap reports
// that.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(c.pid, sig) }
