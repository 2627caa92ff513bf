// Package poll waits for sockets with epoll, and runs what other goroutines post: the
// heart of an event loop. All but Post is for the loop's own goroutine.
package poll

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// events that are taken at once.
	events = 256
)

// Socket is what a Poller waits for.
type Socket interface {
	// Readable and Writable are called by the loop when the socket is; HungUp when nothing
	// can be sent any more.
	Readable()
	Writable()
	HungUp()
}

// Poller waits for sockets, and runs what other goroutines post. All else of a loop is
// touched by its own goroutine only.
type Poller struct {
	epoll, wake int
	sockets     []Socket // by file descriptor
	closing     []int    // closed when a round is over, so that no event is for another socket

	mu     sync.Mutex
	posted []func()
	awake  bool // the loop has been told of what is posted
	ended  bool
}

// New returns a Poller.
func New() (*Poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	return &Poller{epoll: epoll, wake: wake}, nil
}

// Post runs f in the loop. It returns false after the loop's end.
func (p *Poller) Post(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.posted = append(p.posted, f)
	if !p.awake {
		p.awake = true
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	return true
}

// RunPosted runs what was posted.
func (p *Poller) RunPosted() {
	p.mu.Lock()
	if !p.awake {
		p.mu.Unlock()
		return
	}
	todo := p.posted
	p.posted, p.awake = nil, false
	var b [8]byte
	_, _ = unix.Read(p.wake, b[:])
	p.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// Add a socket to wait for: until it can be read.
func (p *Poller) Add(fd int, w Socket) error {
	for len(p.sockets) <= fd {
		p.sockets = append(p.sockets, nil)
	}
	p.sockets[fd] = w
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Change what a socket is waited for.
func (p *Poller) Change(fd int, read, write bool) {
	e := unix.EpollEvent{Fd: int32(fd)}
	if read {
		e.Events |= unix.EPOLLIN
	}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &e)
}

// Remove closes the socket when the round is over.
func (p *Poller) Remove(fd int) {
	p.sockets[fd] = nil
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
	p.closing = append(p.closing, fd)
}

// CloseRemoved closes what was removed in this round.
func (p *Poller) CloseRemoved() {
	for _, fd := range p.closing {
		_ = unix.Close(fd)
	}
	p.closing = p.closing[:0]
}

// Wait calls the sockets that are ready, and returns after a time at the latest.
func (p *Poller) Wait(list List, patience time.Duration, before func()) {
	n, err := unix.EpollWait(p.epoll, list, int(patience/time.Millisecond))
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
		// The first of two events of one socket may remove it.
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

// Ended tells whether Finish was called.
func (p *Poller) Ended() bool { return p.ended }

// List of events for Wait.
type List []unix.EpollEvent

// NewList returns one.
func NewList() List { return make(List, events) }

// Finish ends the loop: what is posted from now on is refused.
func (p *Poller) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// End closes everything.
func (p *Poller) End() {
	p.Finish()
	p.RunPosted()
	for fd, s := range p.sockets {
		if s != nil {
			p.Remove(fd)
		}
	}
	p.CloseRemoved()
	_ = unix.Close(p.wake)
	_ = unix.Close(p.epoll)
}
