package eventloop

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HandOver returns a socket with conn's data: conn's own socket, or, if conn is not a plain socket, one end
// of a pair whose other end is copied to and from conn. lastWords is HalfClose's.
func HandOver(ctx context.Context, conn net.Conn, lastWords time.Duration) (fd int, err error) {
	if plain, ok := conn.(*net.TCPConn); ok {
		defer plain.Close()
		return duplicate(plain)
	}
	fd, near, err := Pair()
	if err != nil {
		_ = conn.Close()
		return -1, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = near.Close() })
	over := make(chan struct{})
	go func() {
		defer close(over)
		toLoop(near, conn)
		_ = near.CloseWrite()
	}()
	go func() {
		w := NewWriter(conn, near)
		fromLoop(w, near)
		w.End()
		HalfClose(conn, near, over, lastWords)
		stop()
		_ = conn.Close()
		_ = near.Close()
	}()
	return fd, nil
}

// HalfClose closes our side of a connection whose loop has closed its side. HalfClose waits until over is closed,
// because the peer has closed its side, too, or for lastWords. near is our end of the pair. A loop with a shorter bound
// closes its end: then the peer's next bytes end the wait.
func HalfClose(conn net.Conn, near *net.UnixConn, over <-chan struct{}, lastWords time.Duration) {
	half, can := conn.(interface{ CloseWrite() error })
	if !can || closed(near) || half.CloseWrite() != nil {
		return
	}
	bound := time.NewTimer(lastWords)
	defer bound.Stop()
	select {
	case <-over:
	case <-bound.C:
	}
}

// Pair returns both ends of a connection.
func Pair() (fd int, near *net.UnixConn, err error) {
	pair, err := newPair()
	if err != nil {
		return -1, nil, err
	}
	conn, err := take(pair[1])
	if err != nil {
		_ = unix.Close(pair[0])
		return -1, nil, err
	}
	return pair[0], conn.(*net.UnixConn), nil
}

// newPair returns two sockets that don't block, and that child processes don't inherit.
func newPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return pair, err
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
		err = errors.Join(err, unix.SetNonblock(fd, true))
	}
	if err != nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
	return pair, err
}

// Copy returns another descriptor of a loop's socket, for goroutines.
func Copy(fd int) (net.Conn, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return take(own)
}

// take turns a descriptor into a connection of Go's runtime.
func take(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	return net.FileConn(file)
}

// duplicate returns a descriptor of a connection's socket that is independent of Go's runtime.
func duplicate(conn *net.TCPConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(own uintptr) {
		fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return -1, err
	}
	return fd, nil
}
