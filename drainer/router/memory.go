package router

import (
	"time"

	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/wire"
)

// The memory that a loop uses for clients and members is counted in held: incomplete requests, requests that
// members have not read, requests of jobs, answers that clients have not read, and the memory of the
// goroutines that carry connections. Code that would use more asks for room first.

const (
	// smallBlock bounds the data blocks that still get room when there is none for larger ones, in bytes.
	smallBlock = 2 << 10
	// crowdedBacklog is memberBacklog while there is no room.
	crowdedBacklog = 64 << 10
	// firstBody is how many bytes are allocated at first for a large request.
	firstBody = 64 << 10
)

// room tells whether a block of n more bytes may be kept.
func (l *loop) room(n int) bool {
	most := l.maxMemory
	if n <= smallBlock {
		most += most / 4
	}
	return l.held+l.coming+n <= most
}

// weigh counts the memory of the goroutines that carry connections.
func (l *loop) weigh() {
	share := int(l.router.clients.Bytes()) / len(l.router.loops)
	l.held += share - l.carried
	l.carried = share
}

// piece returns how many bytes are read from a client at once. The loop may have to keep all of them.
func (l *loop) piece() int {
	if l.held > l.maxMemory {
		return eventloop.Usual
	}
	return readSize
}

// crowded tells whether there is no room for a block of this answer. An answer that its client is reading now
// doesn't need room for the whole block.
func (l *loop) crowded(s *slot, block int) bool {
	if block == 0 || s.hidden || s.client == nil && s.job == nil {
		return false
	}
	switch c := s.client; {
	case c == nil || c.head != s:
	case block <= smallBlock && c.unsent() <= eventloop.Usual: // the block is sent at once, and makes room
		return false
	case c.unsent() <= clientBacklog:
		block = min(block, smallBlock+1)
	}
	return !l.room(block)
}

// count counts the received bytes.
func (c *client) count() {
	n := cap(c.in) + cap(c.body)
	c.loop.held += n - c.counted
	c.counted = n
	switch {
	case n == 0:
		c.partial = 0
	case c.partial == 0:
		c.partial = c.loop.now
	}
}

// overdue tells whether the client has let the router wait for too long.
func (c *client) overdue(config *Config) bool {
	now, short := c.loop.now, c.loop.held > c.loop.maxMemory/2
	patience := int64(config.RequestTimeout)
	switch {
	case c.partial > 0 && !c.stopped && (c.counted > eventloop.Usual || short) && now-c.partial > patience+int64(c.counted/slowest)*int64(time.Second):
		return true
	case c.unsent() > 0 && now-c.used > patience && short:
		return true
	}
	return config.IdleTimeout > 0 && c.head == nil && !c.waits && now-c.used > int64(config.IdleTimeout)
}

// count counts the unsent bytes.
func (m *member) count() {
	n := m.unsent()
	m.loop.held += n - m.counted
	m.counted = n
}

// count counts the job's bytes.
func (j *job) count() {
	n := j.Size()
	j.loop.held += n - j.counted
	j.counted = n
}

// take appends a part of an owner's answer.
func (j *job) take(b []byte) {
	j.Take(b)
	j.loop.held += len(b)
	j.counted += len(b)
}

// forget removes the job's bytes from the count, because the job is over.
func (j *job) forget() {
	j.loop.held -= j.counted
	j.counted = 0
}

// crowded is called when there is no room for the answer.
func (j *job) crowded() { j.Fail(answerNoRoom) }

// collect begins to collect a large request: b begins with its line.
func (c *client) collect(r *wire.Request, b []byte, total, line int) int {
	n := min(total, max(2*len(b), firstBody))
	if !c.loop.room(n) {
		return c.refuse(r, line, r.Data, answerNoStore)
	}
	c.body, c.size = append(make([]byte, 0, n), b...), total
	return len(b)
}

// readBody reads more of a large request.
func (c *client) readBody() {
	n, empty, ok := readInto(c.fd, c.body[len(c.body):cap(c.body)])
	if empty {
		return
	}
	if !ok {
		c.body = nil
		c.finish()
		return
	}
	c.used = c.loop.now
	c.loop.counts.Received += uint64(n)
	if c.body = c.body[:len(c.body)+n]; len(c.body) == cap(c.body) {
		c.stopped = !c.collectOn()
	}
}

// collectOn carries out a large request if it is complete, or makes room for more of it. collectOn returns
// false if the client has to wait for a member.
func (c *client) collectOn() bool {
	if len(c.body) < cap(c.body) {
		return true
	}
	r := &c.loop.request
	line := r.Parse(c.body)
	left := c.size - len(c.body)
	if left > 0 { // body grows in steps, so that announced bytes take no room before they arrive
		if n := min(c.size, 2*len(c.body)); c.loop.room(n - len(c.body)) {
			c.body = append(make([]byte, 0, n), c.body...)
			c.count()
			return true
		}
	}
	if left == 0 && !c.complete(r, c.body[line:]) || left > 0 && c.refuse(r, line, left, answerNoStore) == 0 {
		return false
	}
	c.body = nil
	c.count()
	return true
}

// refuse refuses a request because there is no room for the rest of its data block, left bytes. refuse
// returns the length of the request's line, 0 if the client has to wait for a member. Like memcached, refuse
// deletes the older value that a set was to replace.
func (c *client) refuse(r *wire.Request, line, left int, answer string) int {
	if (r.Verb == wire.Set || r.Verb == wire.MetaSet) && !c.erase(r) {
		return 0
	}
	c.swallow = left
	c.local(r, answer)
	return line
}

// erase deletes the key of a request. The client gets no answer to that.
func (c *client) erase(r *wire.Request) bool {
	text := append(append([]byte("md "), r.Key...), " q"...)
	if r.Binary {
		text = append(text, " b"...)
	}
	var d wire.Request
	d.Parse(append(text, "\r\n"...))
	var room [wire.MaxKey]byte
	m, old := c.loop.owners(d.Hashed(&room))
	if c.wait(m) || old != nil && c.wait(old) {
		return false
	}
	s := c.loop.slot()
	s.verb, s.kind, s.quiet, s.silent = d.Verb, wire.KindOf(d.Verb), true, true
	c.push(s)
	switch {
	case old != nil:
		body := c.body
		c.body = nil // body belongs to another request
		c.moving(&d, s, nil, nil, m, old)
		c.body = body
	case !m.up:
		c.unavailable(s, m)
	default:
		m.request(s)
		m.out = d.AppendTo(m.out)
	}
	return true
}
