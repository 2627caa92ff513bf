// Package eventloop has the parts of an event loop. A Poller waits for sockets with epoll, and runs the
// functions that other goroutines post. Goroutines accept Clients and keep Members connected: resolving
// names, TLS and logins take time. The goroutines give the loop a socket whose other end is a client that may
// be served, or a memcached that answers and is new enough. A loop uses file descriptors, goroutines use
// net.Conns. Free Buffers are kept by size, so that requests cause no garbage collection.
//
// Poller and Buffers are for the loop's own goroutine only, except Poller.Post.
package eventloop

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Socket is a socket that a Poller waits for.
type Socket interface {
	// Readable and Writable are called by the loop when the socket is; HungUp is called when nothing can be
	// sent any more.
	Readable()
	Writable()
	HungUp()
}

// Poller waits for sockets, and runs the functions that other goroutines post. Only the loop's own goroutine
// uses the rest of a loop.
type Poller struct {
	epoll
	sockets []Socket // by file descriptor
	closing []int    // closed when the round is over, so that no event is for another socket

	mu     sync.Mutex
	posted []func()
	awake  bool // the loop has been woken for the posted functions
	ended  bool
}

// New returns a Poller, which only works on Linux.
func New() (*Poller, error) {
	kernel, err := newEpoll()
	if err != nil {
		return nil, err
	}
	return &Poller{epoll: kernel}, nil
}

// Post runs f in the loop, and returns false after the loop's end.
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

// RunPosted runs the posted functions.
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

// Add adds a socket, and waits until it can be read.
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

// CloseRemoved closes the sockets that were removed in this round.
func (p *Poller) CloseRemoved() {
	for _, fd := range p.closing {
		_ = unix.Close(fd)
	}
	p.closing = p.closing[:0]
}

// Ended tells whether Finish was called.
func (p *Poller) Ended() bool { return p.ended }

// Finish ends the loop: Post returns false from now on.
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
