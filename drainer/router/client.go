package router

import (
	"bytes"

	"example.com/memcached-operator/drainer/router/binary"
	"example.com/memcached-operator/drainer/router/eventloop"
	"example.com/memcached-operator/drainer/wire"
)

const (
	// window bounds a client's unanswered requests.
	window = 1024
	// clientBacklog is how many unsent bytes of answers a client may have before its requests have to wait.
	clientBacklog = 1 << 20
	// firstAverage is the assumed size of a client's answers before there are any, in bytes.
	firstAverage = 16 << 10
	// bodyDirect bounds the data blocks that the shared buffer has room for, in bytes.
	bodyDirect = 32 << 10
	// wholeLine is the length of a classic read, in bytes, up to which the router waits for the line's end,
	// if there is room. The keys of a longer read are asked for as they arrive: a client that reads no
	// answers meanwhile may then have to wait.
	wholeLine = 1 << 20
)

const (
	answerNoRoom   = "SERVER_ERROR out of memory writing get response\r\n"
	answerNoStore  = "SERVER_ERROR out of memory storing object\r\n"
	answerTooLarge = "SERVER_ERROR object too large for cache\r\n"
)

// client is a connection of an application.
type client struct {
	stream
	// head to tail are the requests whose answers are not complete, in order.
	head, tail *slot
	unanswered int
	// heldBytes is the size of the answers that wait for earlier ones.
	heldBytes int
	// jobs is how many requests are being carried out for keys whose owner changes. The next request waits
	// for them.
	jobs int
	// average is the average size of an answer, in bytes, times 8.
	average int
	// body collects a large request of known size: its line, and its data block.
	body []byte
	size int
	// counted is how many received bytes are not used yet, as counted in loop.held.
	counted int
	// scanned is how many bytes of in are known to have no line end.
	scanned int
	// partial is when the request that is not complete yet began, in the loop's clock; 0 if there is none.
	partial int64
	// swallow is how many bytes of input to discard: the rest of a refused data block.
	swallow int
	// reading is a read some of whose keys have not been asked for yet.
	reading struct {
		verb    wire.Verb
		exptime int32
		// open means that the end of its line is still to come. any means that it has named a key. cut means
		// that it has named the last key, and the rest of the line doesn't matter.
		open, any, cut bool
	}
	// used is when the client last sent or read something, in the loop's clock.
	used int64
	at   int // its index in loop.clients
	// halfClosed is when the router's side was closed, in the loop's clock; 0 before.
	halfClosed int64

	// prepared means that the next request may be sent, as far as prepare is concerned, unless unprepared says why not.
	prepared   bool
	unprepared error

	mute     bool // the rest of a read gets no answer, because there was an error
	skipping bool // the rest of a line is discarded
	waits    bool // for a member's backlog
	stopped  bool // there may be input that was not read
	queued   bool // the loop calls resume when the round is over
	ending   bool // close when all is answered
	ended    bool // it will send nothing more
	closing  bool // close after an answer (close.go)
	carried  bool // goroutines copy its data, and count the connection
	talked   bool // the first request was read
	binary   bool // its text is translated
	login    login
}

func (c *client) touch() {
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// send appends to the client's output. Bytes that don't fit into a buffer are written before the round is
// over.
func (c *client) send(b []byte) {
	if len(c.out)+len(b) > eventloop.Largest && !c.writes {
		if b = c.through(b); len(b) == 0 {
			return
		}
	}
	c.buffer()
	c.out = c.loop.buffers.Add(c.out, b)
	c.loop.held += len(b)
	c.touch()
}

// through writes the unsent bytes, and then b, if that would not fit into a buffer. through returns the rest
// of b. If the connection is broken, flushed finds out.
func (c *client) through(b []byte) []byte {
	if c.write(); len(c.out) > 0 || len(b) < eventloop.Largest/2 {
		return b
	}
	n := c.writeDirect(b)
	if n > 0 {
		c.used = c.loop.now
	}
	return b[n:]
}

// write sends as many of the unsent bytes as it can. write returns false if the connection is
// broken.
func (c *client) write() bool {
	before, passed := len(c.out), c.passed
	ok := c.flush()
	c.loop.held -= before - len(c.out)
	if c.passed != passed {
		c.used = c.loop.now
	}
	return ok
}

// hold keeps a part of an answer until the earlier answers are complete.
func (c *client) hold(s *slot, b []byte) {
	before := cap(s.held)
	if s.held == nil {
		s.held = c.loop.buffers.Get(len(b))
	}
	s.held = c.loop.buffers.Add(s.held, b)
	c.heldBytes += len(b)
	c.loop.held += cap(s.held) - before
}

func (c *client) unhold(s *slot) {
	c.heldBytes -= len(s.held)
	c.loop.held -= cap(s.held)
	c.loop.buffers.Put(s.held)
	s.held = nil
}

// push appends a request that waits for its answer.
func (c *client) push(s *slot) {
	s.client = c
	if c.head == nil {
		c.head = s
	} else {
		c.tail.next = s
	}
	c.tail = s
	c.unanswered++
	c.loop.held += s.memory()
}

// reply answers a request without a member.
func (c *client) reply(answer string) {
	if c.head == nil {
		c.buffer()
		c.out = append(c.out, answer...)
		c.loop.held += len(answer)
		c.touch()
		return
	}
	s := c.loop.slot()
	c.push(s)
	s.done = true
	c.hold(s, []byte(answer))
}

// advance sends the answers that waited for earlier ones.
func (c *client) advance() {
	for s := c.head; s != nil; s = c.head {
		if len(s.held) > 0 && s.parts == 0 {
			if !c.mute {
				s.started = true
				c.send(s.held)
			}
			c.unhold(s)
		}
		if !s.done {
			return
		}
		c.mute = s.more && (c.mute || s.outcome == wire.Failure && !s.missed)
		c.head = s.next
		c.unanswered--
		c.loop.held -= s.memory()
		c.average += s.size - c.average/8
		c.loop.release(s)
	}
	c.tail = nil
	if c.ending || c.closing {
		c.touch()
	}
}

// goOn continues with the input from before the client was blocked.
func (c *client) goOn() {
	if c.stopped && !c.closed && !c.blocked() {
		c.loop.resumeLater(c)
	}
}

// blocked tells whether the next request has to wait.
func (c *client) blocked() bool {
	if c.jobs > 0 && c.reading.verb == wire.Unknown || c.jobs >= clientJobs || c.waits || c.ending || c.closed || c.unanswered >= window {
		return true
	}
	untaken := c.unsent() + c.heldBytes
	return untaken+c.unanswered*c.average/8 > clientBacklog && c.unanswered+c.unsent() > 0 ||
		untaken+c.unanswered > 0 && c.loop.held > c.loop.maxMemory
}

// Writable is called by the loop.
func (c *client) Writable() { c.touch() }

// HungUp is called by the loop.
func (c *client) HungUp() { c.gone() }

// flushed sends what it can, and then continues or ends.
func (c *client) flushed() {
	switch {
	case !c.write(), c.ending && c.head == nil && c.unsent() == 0:
		c.gone()
	case c.closing && c.idle():
		c.halfClose()
	default:
		c.goOn()
	}
}

// Readable is called by the loop.
func (c *client) Readable() {
	if c.halfClosed > 0 {
		c.discard()
		return
	}
	if c.blocked() || c.stopped || c.queued { // the received input comes first
		c.stopped = true
		c.watch(false, c.writes)
		return
	}
	if c.body != nil {
		c.readBody()
		return
	}
	before := len(c.in)
	b, ok := c.read(c.loop.piece())
	if !ok {
		c.finish()
		return
	}
	if len(b) > 0 {
		c.used = c.loop.now
		c.loop.counts.Received += uint64(len(b) - before)
		c.take(b)
	}
}

// finish handles the end of the client's input. The client may still read its answers.
func (c *client) finish() {
	c.ended = true
	c.watch(false, c.writes)
	c.take(c.in)
}

// resume continues with the input that was received while the client was blocked.
func (c *client) resume() {
	if c.closed {
		return
	}
	if c.stopped = c.blocked(); c.stopped {
		return
	}
	c.partial = 0 // the client is not to blame for the time in which the router didn't read
	if c.body != nil && !c.collectOn() {
		c.stopped = true
		return
	}
	if len(c.in) > 0 || c.ended {
		c.take(c.in)
	}
	if c.closed {
		return
	}
	if c.stopped = c.blocked(); !c.stopped && !c.ended {
		c.watch(true, c.writes)
	}
}

// take carries out the requests in b, and keeps the rest.
func (c *client) take(b []byte) {
	for len(b) > 0 && !c.blocked() {
		n := c.step(b)
		if n == 0 {
			break
		}
		c.partial = 0
		b = b[n:]
	}
	if c.closed {
		return
	}
	if c.ending {
		b = nil
	}
	c.stopped = c.blocked()
	c.keep(b)
	c.count()
	if c.ended && !c.stopped { // the rest is not complete
		c.end()
	}
}

// step carries out one request, or a part of it, and returns how many bytes that takes: 0 if more bytes are
// needed.
func (c *client) step(b []byte) int {
	if from := c.scanned; from > 0 {
		if c.scanned = 0; bytes.IndexByte(b[from:], '\n') < 0 {
			return c.incomplete(b)
		}
	}
	switch {
	case c.swallow > 0:
		n := min(c.swallow, len(b))
		c.swallow -= n
		return n
	case c.skipping:
		if n := bytes.IndexByte(b, '\n') + 1; n > 0 {
			c.skipping = false
			return n
		}
		return len(b)
	case c.reading.verb != wire.Unknown:
		return c.readOn(b)
	case !c.talked && b[0] == binary.Magic:
		c.translate(b)
		return len(b)
	case c.login.wanted:
		return c.logIn(b)
	}
	c.talked = true
	r := &c.loop.request
	n := r.Parse(b)
	if n == 0 {
		return c.incomplete(b)
	}
	if r.Data > 0 {
		return c.store(r, b, n)
	}
	if r.Skip > wire.MaxBlock+2 { // so many bytes would take forever to discard
		c.reply(r.Answer)
		c.end()
		return len(b)
	}
	c.swallow = r.Skip
	return c.carryOut(r, b, n)
}

// incomplete handles a line without its end.
func (c *client) incomplete(b []byte) int {
	if len(b) <= wire.MaxLine {
		c.scanned = len(b)
		return 0
	}
	if verb, n := wire.LongRead(b); n > 0 && !c.login.wanted {
		if len(b) <= min(wholeLine, c.loop.maxMemory/2) && c.loop.room(max(len(b)-c.counted, smallBlock+1)) {
			c.scanned = len(b)
			return 0
		}
		c.talked = true
		c.reading.verb, c.reading.exptime, c.reading.open = verb, 0, true
		return n
	}
	answer := wire.LongLine(b)
	c.reply(answer)
	if answer == wire.AnswerLongLine {
		c.end()
		return len(b)
	}
	c.skipping = true
	return len(b)
}

// store handles a request with a data block: b begins with its line, of n bytes.
func (c *client) store(r *wire.Request, b []byte, n int) int {
	total := n + r.Data
	switch {
	case r.Data > c.loop.router.config.MaxItem:
		return c.refuse(r, n, r.Data, answerTooLarge)
	case len(b) < total && r.Data <= bodyDirect:
		if r.Data > smallBlock && !c.loop.room(r.Data) {
			return c.refuse(r, n, r.Data, answerNoStore)
		}
		return 0
	case len(b) < total:
		return c.collect(r, b, total, n)
	}
	if !c.complete(r, b[n:total]) {
		return 0
	}
	return total
}

// complete handles a request with all of its data block. complete returns false if the client has to
// wait.
func (c *client) complete(r *wire.Request, data []byte) bool {
	if !bytes.HasSuffix(data, []byte("\r\n")) {
		c.local(r, wire.AnswerBadChunk)
		return true
	}
	return c.forward(r, data)
}

// local answers a request in place of a member.
func (c *client) local(r *wire.Request, answer string) {
	if !r.Quiet || r.Verb.Meta() {
		c.reply(answer)
	}
}

// carryOut handles a request without a data block: b begins with its line, of n bytes.
func (c *client) carryOut(r *wire.Request, b []byte, n int) int {
	switch {
	case r.Answer != "":
		c.reply(r.Answer)
	case r.Verb.Reads():
		return c.keys(r, b, n)
	case r.Verb == wire.FlushAll:
		c.everywhere(r)
	case r.Verb == wire.Version:
		c.reply(c.loop.router.memberVersion())
	case r.Verb == wire.Stats:
		c.stats(r)
	case r.Verb > wire.FlushAll:
		if !c.forward(r, nil) {
			return 0
		}
	}
	if r.Close {
		c.end()
	}
	return n
}

// end closes the connection when all requests are answered.
func (c *client) end() {
	c.ending = true
	c.touch()
}

// readOn continues a read with the remaining keys of its line, which b begins with.
func (c *client) readOn(b []byte) int {
	r := &c.loop.request
	if c.reading.open {
		return c.readOpen(r, b)
	}
	n := r.ParseRest(c.reading.verb, c.reading.exptime, b)
	return c.keys(r, b, n)
}

// readOpen continues a read whose line has no end yet, or had none before.
func (c *client) readOpen(r *wire.Request, b []byte) int {
	end, cut := bytes.IndexByte(b, '\n'), bytes.IndexByte(b, 0)
	n := bytes.LastIndexByte(b, ' ') + 1
	switch {
	case c.reading.cut && end < 0:
		return len(b)
	case c.reading.cut:
		c.endRead("")
		return end + 1
	case cut >= 0 && (end < 0 || cut < end): // for memcached, the line ends there
		n = cut + 1
		*r = wire.Request{Verb: c.reading.verb, Keys: b[:cut]}
		read := c.keys(r, b, n)
		c.reading.cut = read == n && c.reading.open
		return read
	case end >= 0:
		n = r.ParseRest(c.reading.verb, 0, b)
		if key, _ := wire.Next(r.Keys); len(key) == 0 {
			c.endRead("")
			return n
		}
		c.reading.open = false // the answer to the last key has the END
		return c.keys(r, b, n)
	case n == 0 && len(b) > wire.MaxKey+len("\r"):
		return c.longKey(0, len(b))
	}
	*r = wire.Request{Verb: c.reading.verb, Keys: b[:n]}
	return c.keys(r, b, n)
}

// endRead ends the answer to a read whose last key was not known to be the last.
func (c *client) endRead(answer string) {
	if answer == "" {
		if answer = wire.AnswerEnd; !c.reading.any {
			answer = wire.AnswerError
		}
	}
	c.reading.verb, c.reading.open, c.reading.any, c.reading.cut = wire.Unknown, false, false, false
	if c.head != nil || !c.mute {
		c.reply(answer)
	}
	if c.head == nil {
		c.mute = false
	}
}

// longKey returns the answer to a key that is too long, in a line whose earlier keys were asked for. end is
// where the line ends in the n received bytes; 0 if it doesn't.
func (c *client) longKey(end, n int) int {
	c.endRead(wire.AnswerBadFormat)
	if end == 0 {
		c.skipping = true
		return n
	}
	return end
}

// keys asks for the keys of a read, each separately, as many as the window allows.
func (c *client) keys(r *wire.Request, b []byte, n int) int {
	for key := r.NextKey(); key != nil; {
		if len(key) > wire.MaxKey {
			return c.longKey(bytes.IndexByte(b, '\n')+1, len(b))
		}
		m, old := c.loop.owners(key)
		if !c.prepare(r, key, m) || c.wait(m) || old != nil && c.wait(old) {
			c.later(r)
			return cap(b) - cap(key) // the key is asked for again
		}
		c.sent()
		s := c.loop.slot()
		s.verb, s.kind, s.key = r.Verb, wire.Values, append(s.key[:0], key...)
		next := r.NextKey()
		c.reading.any = c.reading.open
		s.more, s.lenient = next != nil || c.reading.open, !c.loop.router.config.ReadErrors
		if c.loop.router.source != nil && old == nil {
			s.askable(r, key, func(dst []byte) []byte { return r.AppendRead(dst, key) })
		}
		c.push(s)
		switch {
		case old != nil:
			c.moving(r, s, key, nil, m, old)
		case m.up:
			m.request(s)
			m.out = r.AppendRead(m.out, key)
		default:
			c.unavailable(s, m)
		}
		if key = next; key != nil && (c.unanswered >= window || c.jobs >= clientJobs || c.unanswered > 0 && c.loop.held > c.loop.maxMemory) {
			c.later(r)
			return cap(b) - cap(key)
		}
	}
	if !c.reading.open {
		c.reading.verb, c.reading.any = wire.Unknown, false
	}
	return n
}

// between tells whether the client is between two requests.
func (c *client) between() bool { return c.body == nil && len(c.in) == 0 && !c.reading.open }

// later keeps the remaining keys, which are asked for when there is room.
func (c *client) later(r *wire.Request) {
	if c.reading.verb == wire.Unknown {
		c.reading.verb, c.reading.exptime = r.Verb, r.Exptime
	}
}

// wait tells whether the client has to wait for a member's backlog.
func (c *client) wait(m *member) bool {
	if !m.up || !m.full() {
		return false
	}
	c.waits = true
	m.waiting = append(m.waiting, c)
	return true
}

// forward sends a request to the owner of its key. forward returns false if the client has to wait.
func (c *client) forward(r *wire.Request, data []byte) bool {
	var room [wire.MaxKey]byte
	key := r.Hashed(&room)
	m, old := c.loop.owners(key)
	if !c.prepare(r, key, m) || c.wait(m) || old != nil && c.wait(old) {
		return false
	}
	if why := c.sent(); why != "" {
		c.local(r, why)
		return true
	}
	s := c.loop.slot()
	s.verb, s.kind, s.quiet = r.Verb, wire.KindOf(r.Verb), r.Quiet
	s.lenient = r.Verb == wire.MetaGet && (!c.binary || r.Has('v')) && !c.loop.router.config.ReadErrors
	if s.lenient && (r.Has('k') || r.Has('O')) {
		s.absent = r.AppendMiss(s.absent[:0])
	}
	if s.echo = r.Echo(); s.echo.On() {
		s.key = append(s.key[:0], r.Key...)
	}
	if c.loop.router.source != nil && old == nil {
		s.askable(r, key, r.AppendTo)
	}
	c.push(s)
	if old != nil {
		c.moving(r, s, nil, data, m, old)
		return true
	}
	if !m.up {
		c.unavailable(s, m)
		return true
	}
	m.through(len(data))
	m.request(s)
	m.out = m.loop.buffers.Add(r.AppendTo(m.out), data)
	return true
}

// unavailable answers for a member that is not connected.
func (c *client) unavailable(s *slot, m *member) {
	s.fail(m.unavailable())
	c.loop.answered(s)
}

// broken closes a connection on which no sensible answer is possible any more.
func (c *client) broken() { c.gone() }

// gone closes the connection. Members still answer the client's requests.
func (c *client) gone() {
	if c.closed {
		return
	}
	l := c.loop
	l.held -= len(c.out)
	for s := c.head; s != nil; {
		next := s.next
		c.unhold(s)
		l.held -= s.memory()
		s.client, s.next = nil, nil
		if !s.pending {
			l.release(s)
		}
		s = next
	}
	c.head, c.tail, c.body = nil, nil, nil
	c.close()
	c.count()
	l.forget(c)
}
