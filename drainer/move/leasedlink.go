package move

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/ringchange"
)

// connection is a connection that ends with the pass.
type connection struct {
	*memcache.Conn
	stop func() bool
}

func (c *connection) close() {
	c.stop()
	c.Close()
}

// ownersPool keeps connections to owners from one batch to the next.
type ownersPool struct {
	pass *leasedPass
	ctx  context.Context // of the pass

	mu   sync.Mutex
	idle [][]*connection // by owner
	n    int
}

// take returns a connection to a server: an idle one, or a new one.
func (p *ownersPool) take(server int, timeout time.Duration) (*connection, error) {
	address := p.pass.From
	if server != theMember {
		if c := p.kept(server); c != nil {
			return c, nil
		}
		address = p.pass.To[server]
	}
	dialing, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	c, err := p.pass.Dialer.Dial(dialing, address)
	if err != nil {
		return nil, err
	}
	return &connection{c, context.AfterFunc(p.ctx, func() { c.Close() })}, nil
}

func (p *ownersPool) kept(owner int) (c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle[owner]) - 1; last >= 0 {
		c, p.idle[owner] = p.idle[owner][last], p.idle[owner][:last]
		p.n--
	}
	return c
}

func (p *ownersPool) put(owner int, c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == mostIdle {
		c.close()
		return
	}
	p.idle[owner] = append(p.idle[owner], c)
	p.n++
}

func (p *ownersPool) close() {
	for _, idle := range p.idle {
		for _, c := range idle {
			c.close()
		}
	}
}

// leasedLink is a lane with its connections.
type leasedLink struct {
	pool  *ownersPool
	owner int
	lane  KeyMover
	conns [2]*connection
	// failed is the owner with the last error.
	failed ringchange.Place
}

func (l *leasedLink) server(p ringchange.Place) int {
	if p == ringchange.Old {
		return theMember
	}
	return l.owner
}

// move moves a batch, over other connections if these break.
func (l *leasedLink) move(ctx context.Context, keys []LeasedKey) error {
	waiting := func(why string) {
		for _, p := range []ringchange.Place{ringchange.Old, ringchange.New} {
			if why == "" || p == l.failed {
				l.pool.pass.Waiting(l.server(p), why)
			}
		}
	}
	err := memcache.Insist(ctx, l.pool.pass.Timeout, waiting, func(timeout time.Duration) error {
		err := l.connect(timeout)
		if err == nil {
			err = l.lane.Move(keys)
		}
		if err != nil {
			var at *ownerError
			if errors.As(err, &at) {
				l.failed = at.Place
			}
			l.close()
		}
		return err
	})
	if err != nil {
		return &passError{l.server(l.failed), err}
	}
	return nil
}

// connect prepares for requests that take timeout at most.
func (l *leasedLink) connect(timeout time.Duration) error {
	for i, c := range l.conns {
		p := ringchange.Place(i)
		if c == nil {
			var err error
			if c, err = l.pool.take(l.server(p), timeout); err != nil {
				return &ownerError{p, err}
			}
			l.conns[p], l.lane.Owners[p] = c, c.Conn
		}
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return &ownerError{p, err}
		}
	}
	return nil
}

// release keeps the connection for other lanes.
func (l *leasedLink) release(p ringchange.Place) {
	l.pool.put(l.owner, l.conns[p])
	l.conns[p], l.lane.Owners[p] = nil, nil
}

func (l *leasedLink) close() {
	for p, c := range l.conns {
		if c != nil {
			c.close()
		}
		l.conns[p], l.lane.Owners[p] = nil, nil
	}
}
