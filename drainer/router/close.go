package router

import (
	"time"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/wire"
)

// A router that is told to end has to close its clients' connections, and the protocol has no word that announces it. A
// library that keeps connections in a pool learns of it when it uses one the next time. Some then ask again (Dalli,
// python-memcached), or have connected anew (memjs). Others return an error once for each connection, however it is
// closed (gomemcache, pymemcache, libmemcached); an application can ask again itself. So:
//
//   - Clients that connect for a few requests go by themselves while the router lingers, and are not interrupted.
//   - Connections are closed one after the other: an application that asks again doesn't meet another closed one of its
//     pool, and not all are made anew at once.
//   - A connection is closed right after an answer, if nothing more has arrived: then no request is under way. Only the
//     last ones are closed while they are idle.
//   - At first, only the router's side is closed. Requests that the client sends before it knows are read, and not
//     carried out, until it closes its own side, or the time for that is over. If a socket with unread data is
//     closed, the other end gets a reset, and may lose the last answer.

// ends is how the connections of a loop are closed.
type ends struct {
	began int64 // in the loop's clock
	over  time.Duration
	all   int // the connections at the beginning, and those since
	// ahead is how much earlier than another loop this one closes them, so that not each loop closes one at the same
	// moment.
	ahead time.Duration
}

// stay is how many connections stay open at a time since the beginning.
func (e *ends) stay(since time.Duration) int {
	left := e.over - since - e.ahead
	if left <= 0 {
		return 0
	}
	return int((int64(e.all)*int64(left) + int64(e.over) - 1) / int64(e.over))
}

// end begins to close the connections of the loop, the k-th of n, over so long.
func (l *loop) end(over time.Duration, k, n int) {
	all := len(l.clients)
	l.ends = &ends{began: l.now, over: over, all: all, ahead: over * time.Duration(k) / time.Duration(n*max(all, 1))}
	l.closeNext()
}

// closeNext closes those whose turn has come.
func (l *loop) closeNext() {
	if l.ends == nil {
		return
	}
	since := time.Duration(l.now - l.ends.began)
	stay, last := l.ends.stay(since), since >= l.ends.over
	for i, open := len(l.clients)-1, 0; i >= 0; i-- { // one that goes is replaced by the last one, which had its turn
		c := l.clients[i]
		if !c.closing {
			open++
			c.closing = open > stay
		}
		switch {
		case c.halfClosed > 0 && l.now-c.halfClosed > int64(l.router.config.LastWords):
			c.gone()
		case c.closing && last && c.idle():
			c.halfClose()
		}
	}
}

// idle tells whether nothing of the client's is under way, as far as was read.
func (c *client) idle() bool {
	return c.between() && c.head == nil && c.unsent() == 0 && c.swallow == 0 && !c.skipping && c.reading.verb == wire.Unknown &&
		!c.stopped && !c.queued && !c.ending && !c.ended && !c.closed && c.halfClosed == 0
}

// halfClose closes the router's side of an idle connection, unless more has arrived, which is answered first.
func (c *client) halfClose() {
	if c.Readable(); !c.idle() {
		return
	}
	if unix.Shutdown(c.fd, unix.SHUT_WR) != nil {
		c.gone()
		return
	}
	c.halfClosed = max(c.loop.now, 1)
}

// discard reads what the client has sent before it knew that the router's side is closed.
func (c *client) discard() {
	if _, _, ok := readInto(c.fd, c.loop.input); !ok {
		c.gone()
	}
}
