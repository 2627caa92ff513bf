package router

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is what a loop reads at once, in bytes. Its buffer is shared by all its
	// connections.
	readSize = 128 << 10
	// tick is how often a loop looks for time-outs.
	tick = 100 * time.Millisecond
	// events that a loop takes at once.
	events = 256
)

// watched is a socket of a loop.
type watched interface {
	// readable and writable are called by the loop when the socket is; hungUp when nothing
	// can be sent any more.
	readable()
	writable()
	hungUp()
}

// poller waits for sockets, and runs what other goroutines post. All else of a loop is
// touched by its own goroutine only.
type poller struct {
	epoll, wake int
	sockets     []watched // by file descriptor
	closing     []int     // closed when a round is over, so that no event is for another socket

	mu     sync.Mutex
	posted []func()
	awake  bool // the loop has been told of what is posted
	ended  bool
}

func newPoller() (*poller, error) {
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
	return &poller{epoll: epoll, wake: wake}, nil
}

// post runs f in the loop. It returns false after the loop's end.
func (p *poller) post(f func()) bool {
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

// runPosted runs what was posted.
func (p *poller) runPosted() {
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

func (p *poller) add(fd int, w watched) error {
	for len(p.sockets) <= fd {
		p.sockets = append(p.sockets, nil)
	}
	p.sockets[fd] = w
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (p *poller) change(fd int, read, write bool) {
	e := unix.EpollEvent{Fd: int32(fd)}
	if read {
		e.Events |= unix.EPOLLIN
	}
	if write {
		e.Events |= unix.EPOLLOUT
	}
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, fd, &e)
}

// remove closes the socket when the round is over.
func (p *poller) remove(fd int) {
	p.sockets[fd] = nil
	_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
	p.closing = append(p.closing, fd)
}

func (p *poller) closeRemoved() {
	for _, fd := range p.closing {
		_ = unix.Close(fd)
	}
	p.closing = p.closing[:0]
}

// wait calls the sockets that are ready, and returns after a time at the latest.
func (p *poller) wait(list []unix.EpollEvent, patience time.Duration, before func()) {
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
			s.hungUp()
		}
		if s := p.sockets[e.Fd]; s != nil && e.Events&unix.EPOLLOUT != 0 {
			s.writable()
		}
		if s := p.sockets[e.Fd]; s != nil && e.Events&unix.EPOLLIN != 0 {
			s.readable()
		}
	}
}

// finish ends the loop: what is posted from now on is refused.
func (p *poller) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// end closes everything.
func (p *poller) end() {
	p.finish()
	p.runPosted()
	for fd, s := range p.sockets {
		if s != nil {
			p.remove(fd)
		}
	}
	p.closeRemoved()
	_ = unix.Close(p.wake)
	_ = unix.Close(p.epoll)
}
