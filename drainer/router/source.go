package router

import (
	"bytes"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/router/onmiss"
	"example.com/memcached-operator/drainer/wire"
)

// prepare makes sure that a request may be sent, if another cache is asked for missed keys (package onmiss).
// prepare returns false if the client has to wait.
func (c *client) prepare(r *wire.Request, key []byte, owner *member) bool {
	source := c.loop.router.source
	if source == nil || c.prepared || !owner.up {
		return true
	}
	pull, mark := onmiss.Needs(r)
	if !pull && !mark {
		return true
	}
	l := c.loop
	c.waits = true
	source.Prepare(bytes.Clone(key), pull, mark, func(err error) {
		l.poller.Post(func() {
			c.prepared, c.unprepared, c.waits = true, err, false
			l.resumeLater(c)
		})
	})
	return false
}

// sent ends the work of prepare, and returns why the request must not be sent.
func (c *client) sent() (why string) {
	if c.unprepared != nil {
		why = "SERVER_ERROR " + contract.OneLine(c.unprepared) + "\r\n"
	}
	c.prepared, c.unprepared = false, nil
	return why
}

// askable lets a read ask the other cache if it finds nothing. key is the one that is hashed, and text the request.
func (s *slot) askable(r *wire.Request, key []byte, text func([]byte) []byte) {
	if s.asks = onmiss.Reads(r); s.asks {
		s.asked, s.request = append(s.asked[:0], key...), text(s.request[:0])
	}
}

// asksSource tells whether the other cache is asked now, because the member has answered that there is no item.
func (l *loop) asksSource(s *slot, code wire.Code) bool {
	if !s.asks || s.client == nil || code != wire.Miss && (code != wire.End || s.outcome == wire.Value) {
		return false
	}
	s.asks = false
	return l.router.source.Ask(s.asked, func() { l.poller.Post(func() { l.askAgain(s) }) })
}

// askAgain repeats a read at the key's owner.
func (l *loop) askAgain(s *slot) {
	m, old := l.owners(s.asked)
	if s.client == nil || old != nil || !m.up {
		s.miss()
		l.answered(s)
		return
	}
	m.request(s)
	m.out = append(m.out, s.request...)
}
