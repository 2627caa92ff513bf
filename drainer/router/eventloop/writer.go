package eventloop

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// look is how often a long write checks whether the loop has closed its end.
	look = time.Second
	// drainTimeout is how long the peer may then take to read the rest.
	drainTimeout = 10 * time.Second
)

// Writer writes to a connection. A peer that reads nothing can't block Write forever: once the loop has
// closed its end of the pair, the peer has a bounded time to read the rest. A deadline for each write would
// not work, because TLS is broken after a deadline that has passed.
type Writer struct {
	net.Conn
	near  *net.UnixConn
	watch *time.Timer
}

// NewWriter returns a Writer. near is our end of the pair.
func NewWriter(conn net.Conn, near *net.UnixConn) *Writer {
	w := &Writer{Conn: conn, near: near}
	w.watch = time.AfterFunc(look, w.look)
	w.watch.Stop()
	return w
}

// Write writes to the connection. One more check may follow Write, which does no harm.
func (w *Writer) Write(b []byte) (int, error) {
	w.watch.Reset(look)
	defer w.watch.Stop()
	return w.Conn.Write(b)
}

func (w *Writer) look() {
	if !closed(w.near) {
		w.watch.Reset(look)
		return
	}
	_ = w.SetWriteDeadline(time.Now().Add(drainTimeout))
}

// SyscallConn returns the connection's.
func (w *Writer) SyscallConn() (syscall.RawConn, error) {
	if conn, ok := w.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// End ends the checks.
func (w *Writer) End() { w.watch.Stop() }

// closed tells whether the other end of the pair is closed.
func closed(near *net.UnixConn) (is bool) {
	raw, err := near.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		events := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(events, 0)
		is = err == nil && n > 0 && events[0].Revents&unix.POLLHUP != 0
	})
	return is || err != nil
}
