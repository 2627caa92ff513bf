package binary

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// window bounds the unanswered requests, because their keys are kept.
	window = 128
	// bufferSize is the size of each of a connection's four buffers, in bytes. An idle connection has none.
	bufferSize = 4 << 10
)

// The free buffers.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}
)

// Config configures a translation.
type Config struct {
	// MaxItem bounds a value, in bytes, with its line end in text. It is the same bound as for clients of the
	// text protocol.
	MaxItem int
	// Patience bounds how long an application may read none of its answers; 0 is no bound.
	Patience time.Duration
	// Admits tells whether user and password are accepted; nil if no login is needed.
	Admits func(user, password []byte) bool
	// Wait waits until a connection has something to read, or has ended.
	Wait func(net.Conn) error
	// HalfClose closes our side of the client's connection, and waits until the client has closed its own, which over
	// tells, or for a bounded time; nil for neither.
	HalfClose func(over <-chan struct{})
	// Version returns the text answer to a request for the version.
	Version func() string
}

// Text is a connection to a server of the text protocol.
type Text interface {
	net.Conn
	CloseWrite() error
}

// Translate translates an application's requests to text, and the answers back, until both sides have ended.
// It closes both connections. first is what the application has sent so far.
//
// Each request becomes one text request with one answer, so the order needs no further state.
func Translate(client net.Conn, first []byte, text Text, config Config) {
	t := &translator{config: config, pending: make(chan *pending, window), done: make(chan struct{}), loggedIn: config.Admits == nil}
	var requests sync.WaitGroup
	over := make(chan struct{})
	requests.Go(func() {
		defer close(over)
		b := between{in: client, out: text, wait: config.Wait}
		b.take(bytes.NewReader(first))
		err := error(nil)
		for err == nil {
			if t.client, t.text = b.reader, b.writer; t.carry() != nil {
				break
			}
			err = b.rest()
		}
		b.end()
		close(t.pending)
		_ = text.CloseWrite() // it ends when all requests are answered
	})
	b := between{in: text, out: &patient{client, config.Patience}, wait: config.Wait}
	for b.take(nil); b.rest() == nil && t.answer(b.writer, b.reader); {
	}
	b.end()
	close(t.done)
	if config.HalfClose != nil {
		config.HalfClose(over)
	}
	_ = client.Close()
	_ = text.Close()
	requests.Wait()
}

// translator translates one connection. All fields but pending and done belong to the first goroutine, which
// translates requests.
type translator struct {
	config  Config
	pending chan *pending // in the order of the requests
	done    chan struct{} // closed when answers are no longer waited for
	client  *bufio.Reader
	text    *bufio.Writer
	request request
	line    []byte
	room    [255 + maxKey]byte
	// loggedIn means that requests are carried out. opened means that the other side has got the login.
	// invited means that the application has asked to log in, and its password follows.
	loggedIn, opened, invited bool
}

// answer answers a request; it returns false if there is no other.
func (t *translator) answer(client *bufio.Writer, text *bufio.Reader) bool {
	if _, err := text.Peek(1); err != nil {
		return false
	}
	p, ok := <-t.pending
	return ok && p.answer(client, text) == nil
}

// between has the buffers of one direction: the input, and the output that results from it.
type between struct {
	in     net.Conn
	out    io.Writer
	wait   func(net.Conn) error
	first  *bytes.Reader // the input from before
	reader *bufio.Reader
	writer *bufio.Writer
}

func (b *between) take(first *bytes.Reader) {
	b.first = first
	b.reader, b.writer = readers.Get().(*bufio.Reader), writers.Get().(*bufio.Writer)
	b.reader.Reset(b)
	b.writer.Reset(b.out)
}

// Read flushes the output before it waits for more input.
func (b *between) Read(p []byte) (int, error) {
	if b.first != nil && b.first.Len() > 0 {
		return b.first.Read(p)
	}
	if err := b.writer.Flush(); err != nil {
		return 0, err
	}
	return b.in.Read(p)
}

// rest frees the buffers, if they are empty, until there is more input.
func (b *between) rest() error {
	if b.reader.Buffered() > 0 || b.first != nil && b.first.Len() > 0 {
		return nil
	}
	err := b.writer.Flush()
	b.give()
	if err == nil {
		err = b.wait(b.in)
	}
	b.take(nil)
	return err
}

func (b *between) give() {
	b.reader.Reset(nil)
	b.writer.Reset(nil)
	readers.Put(b.reader)
	writers.Put(b.writer)
}

// end flushes the output.
func (b *between) end() {
	_ = b.writer.Flush()
	b.give()
}

// carry translates one request. An error means that it was the last one.
func (t *translator) carry() error {
	r := &t.request
	if err := t.read(r); err != nil {
		return err
	}
	p := &pending{command: r.command, opcode: r.opcode, opaque: r.opaque}
	why, ends := r.refused(t.loggedIn)
	// A set that is too large is refused by the other side, which also deletes the key, as memcached does.
	if why == statusOK && (r.kind == store || r.kind == extend) && r.mode != "" && r.valueLen()+len("\r\n") > t.config.MaxItem {
		why = statusTooLarge
	}
	if why != statusOK {
		return t.refuse(p, why, ends)
	}
	if r.withKey {
		p.keyText = bytes.Clone(r.theKey())
	}
	switch r.kind {
	case mechanisms, login, loginStep:
		return t.logIn(p)
	case version:
		p.local = true
		if v, ok := strings.CutPrefix(t.config.Version(), "VERSION "); ok {
			p.body = []byte(strings.TrimSpace(v))
		} else {
			p.failure([]byte(strings.TrimSpace(v)))
		}
	}
	if err := t.say(p); err != nil {
		return err
	}
	switch r.kind {
	case store, extend:
		if err := transfer(t.text, t.client, r.valueLen()); err != nil {
			return err
		}
		_, err := t.text.WriteString("\r\n")
		return err
	case quit:
		return errEnds
	}
	return nil
}

// read reads a request up to its value.
func (t *translator) read(r *request) error {
	if _, err := io.ReadFull(t.client, t.room[:headerSize]); err != nil {
		return err
	}
	r.parse(t.room[:headerSize])
	r.command = commands[r.opcode]
	if r.magic != Magic {
		return errBroken
	}
	if r.keyLen > maxKey { // it will be refused
		r.extrasAndKey = nil
		_, err := t.client.Discard(r.extrasLen + r.keyLen)
		return err
	}
	r.extrasAndKey = t.room[:r.extrasLen+r.keyLen]
	_, err := io.ReadFull(t.client, r.extrasAndKey)
	return err
}

// refuse refuses a request, and discards its value.
func (t *translator) refuse(p *pending, why status, ends bool) error {
	p.local, p.ends = true, ends
	p.fail(why)
	t.request.kind = unknown
	if err := t.say(p); err != nil {
		return err
	}
	if ends {
		return errEnds
	}
	_, err := t.client.Discard(t.request.valueLen())
	return err
}

// say writes the request in text.
func (t *translator) say(p *pending) error {
	if err := t.expect(p); err != nil {
		return err
	}
	t.line = t.request.appendText(t.line[:0])
	_, err := t.text.Write(t.line)
	return err
}

// expect adds a request that waits for its answer. It blocks while there are too many.
func (t *translator) expect(p *pending) error {
	select {
	case t.pending <- p:
		return nil
	default:
	}
	if err := t.text.Flush(); err != nil {
		return err
	}
	select {
	case t.pending <- p:
		return nil
	case <-t.done:
		return errEnds
	}
}

// transfer copies n bytes.
func transfer(to *bufio.Writer, from *bufio.Reader, n int) error {
	for n > 0 {
		if _, err := from.Peek(1); err != nil {
			return err
		}
		b, err := from.Peek(min(n, from.Buffered()))
		if err != nil {
			return err
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
		n -= len(b)
		if _, err := from.Discard(len(b)); err != nil {
			return err
		}
	}
	return nil
}

// patient bounds the duration of each write.
type patient struct {
	net.Conn
	patience time.Duration
}

func (p *patient) Write(b []byte) (int, error) {
	if p.patience > 0 {
		_ = p.SetWriteDeadline(time.Now().Add(p.patience))
	}
	return p.Conn.Write(b)
}
