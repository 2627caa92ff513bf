// Package eventloop has what an event loop is made of. A Poller waits for sockets with epoll, and runs what
// other goroutines post. Clients are accepted, and Members are kept connected, by goroutines: they resolve names,
// speak TLS and log in, since that takes time, and give the loop a socket at whose other end is a client that may
// be served, or a memcached that answers and is new enough. A loop has file descriptors, goroutines have net.Conns.
// Buffers that a loop doesn't use now are kept by size, so that requests cause no garbage collection.
//
// But for Poller.Post, Poller and Buffers are for the loop's own goroutine.
package eventloop

import (
	"sync"

	"golang.org/x/sys/unix"
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
	epoll
	sockets []Socket // by file descriptor
	closing []int    // closed when a round is over, so that no event is for another socket

	mu     sync.Mutex
	posted []func()
	awake  bool // the loop has been told of what is posted
	ended  bool
}

// New returns a Poller. There is none but on Linux.
func New() (*Poller, error) {
	kernel, err := newEpoll()
	if err != nil {
		return nil, err
	}
	return &Poller{epoll: kernel}, nil
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
		p.wakeUp()
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
	p.woken()
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
	return p.add(fd)
}

// Remove closes the socket when the round is over.
func (p *Poller) Remove(fd int) {
	p.sockets[fd] = nil
	p.remove(fd)
	p.closing = append(p.closing, fd)
}

// CloseRemoved closes what was removed in this round.
func (p *Poller) CloseRemoved() {
	for _, fd := range p.closing {
		_ = unix.Close(fd)
	}
	p.closing = p.closing[:0]
}

// Ended tells whether Finish was called.
func (p *Poller) Ended() bool { return p.ended }

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
	p.close()
}
