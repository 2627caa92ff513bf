package eventloop

import (
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// smallPiece is how many bytes are read at once from a connection that was idle: few requests are larger.
	// A large request is read into a larger piece, which idle connections don't have.
	smallPiece = 1 << 10
	largePiece = 16 << 10
)

// pieces are the free pieces.
var pieces = sync.Pool{New: func() any { return new([largePiece]byte) }}

// toLoop copies from an encrypted connection to the loop, until the connection ends.
func toLoop(near io.Writer, conn net.Conn) {
	small := make([]byte, smallPiece)
	for {
		n, err := conn.Read(small)
		if n > 0 {
			if _, bad := near.Write(small[:n]); bad != nil {
				return
			}
		}
		if err == nil && n == len(small) {
			err = restToLoop(near, conn)
		}
		if err != nil {
			return
		}
	}
}

// restToLoop copies the rest of a record, which is no larger than a piece. If there is no rest, the next
// record has to arrive first.
func restToLoop(near io.Writer, conn net.Conn) error {
	if counts, ok := conn.(interface{ Large() }); ok {
		counts.Large()
	}
	piece := pieces.Get().(*[largePiece]byte)
	defer pieces.Put(piece)
	n, err := conn.Read(piece[:])
	if n > 0 {
		if _, bad := near.Write(piece[:n]); bad != nil {
			return bad
		}
	}
	return err
}

// fromLoop copies from the loop to an encrypted connection, until the loop has closed its end.
func fromLoop(w io.Writer, near *net.UnixConn) {
	for Wait(near) == nil {
		if err := fromLoopNow(w, near); err != nil {
			return
		}
	}
}

// fromLoopNow copies the bytes that have arrived.
func fromLoopNow(w io.Writer, near *net.UnixConn) error {
	piece := pieces.Get().(*[largePiece]byte)
	defer pieces.Put(piece)
	n, err := near.Read(piece[:])
	if n > 0 {
		if _, bad := w.Write(piece[:n]); bad != nil {
			return bad
		}
	}
	return err
}

// Wait waits until a socket has something to read, or has ended, and needs no buffer meanwhile. Wait returns at
// once for a connection that is not a socket.
func Wait(conn net.Conn) error {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var one [1]byte
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			_, _, failed = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = failed
	}
	return err
}
