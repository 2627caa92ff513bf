package eventloop

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// events is how many events are taken at once.
const events = 256

// epoll has the epoll descriptor of a Poller, and a descriptor that wakes the loop.
type epoll struct{ fd, wake int }

func newEpoll() (epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return epoll{}, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(fd)
		return epoll{}, err
	}
	e := epoll{fd: fd, wake: wake}
	if err := e.add(wake); err != nil {
		e.close()
		return epoll{}, err
	}
	return e, nil
}

func (e *epoll) wakeUp() { _, _ = unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (e *epoll) woken() {
	var b [8]byte
	_, _ = unix.Read(e.wake, b[:])
}

func (e *epoll) add(fd int) error {
	return unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (e *epoll) remove(fd int) {
	_ = unix.EpollCtl(e.fd, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
}

func (e *epoll) close() {
	_ = unix.Close(e.wake)
	_ = unix.Close(e.fd)
}

// Change sets the events that a socket is waited for.
func (p *Poller) Change(fd int, read, write bool) {
	e := unix.EpollEvent{Fd: int32(fd)}
	if read {
		e.Events |= unix.EPOLLIN
	}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &e)
}

// Wait calls the sockets that are ready, and returns after patience at the latest.
func (p *Poller) Wait(list List, patience time.Duration, before func()) {
	n, err := unix.EpollWait(p.fd, list, int(patience/time.Millisecond))
	before()
	if err != nil {
		if err != unix.EINTR {
			runtime.Gosched()
		}
		return
	}
	for _, e := range list[:n] {
		if int(e.Fd) == p.wake {
			continue
		}
		// The first of two events of a socket may remove it.
		if s := p.sockets[e.Fd]; s != nil && e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			s.HungUp()
		}
		if s := p.sockets[e.Fd]; s != nil && e.Events&unix.EPOLLOUT != 0 {
			s.Writable()
		}
		if s := p.sockets[e.Fd]; s != nil && e.Events&unix.EPOLLIN != 0 {
			s.Readable()
		}
	}
}

// List is a buffer of events for Wait.
type List []unix.EpollEvent

// NewList returns a buffer.
func NewList() List { return make(List, events) }
