package router

import (
	"slices"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/router/eventloop"
)

// stream is a socket of a loop with its unsent output. A stream has a buffer only while there are bytes in
// the buffer.
type stream struct {
	loop *loop
	fd   int
	// The bytes of out from sent on are still to be sent.
	out  []byte
	sent int
	// passed is how many bytes the kernel has accepted.
	passed uint64
	// in has received bytes that can't be used yet.
	in []byte
	// dirty means that the loop flushes it when the round is over.
	dirty bool
	// reads and writes are the events that epoll waits for.
	reads, writes bool
	closed        bool
}

func (s *stream) open(l *loop, fd int, w eventloop.Socket) error {
	s.loop, s.fd, s.reads = l, fd, true
	return l.poller.Add(fd, w)
}

// unsent returns the number of bytes that the kernel has not accepted.
func (s *stream) unsent() int { return len(s.out) - s.sent }

// buffer makes room to append to out.
func (s *stream) buffer() {
	if s.out == nil {
		s.out = s.loop.buffers.Get(eventloop.Usual)
	}
}

// flush writes as much as it can. flush returns false if the connection is broken.
func (s *stream) flush() bool {
	for s.sent < len(s.out) {
		n, err := unix.Write(s.fd, s.out[s.sent:])
		switch {
		case err == unix.EAGAIN:
			s.watch(s.reads, true)
			s.shift()
			return true
		case err == unix.EINTR:
		case err != nil:
			return false
		default:
			s.sent += n
			s.passed += uint64(n)
		}
	}
	s.loop.buffers.Put(s.out)
	s.out, s.sent = nil, 0
	s.watch(s.reads, false)
	return true
}

// writeDirect writes as much of b as the kernel accepts. There must be no unsent bytes before it.
func (s *stream) writeDirect(b []byte) int {
	n, err := unix.Write(s.fd, b)
	if err != nil {
		return 0
	}
	s.passed += uint64(n)
	return n
}

// shift moves the unsent bytes to the beginning, if they are the smaller part.
func (s *stream) shift() {
	if s.sent > len(s.out)/2 {
		s.out = append(s.out[:0], s.out[s.sent:]...)
		s.sent = 0
	}
}

func (s *stream) watch(reads, writes bool) {
	if !s.closed && (s.reads != reads || s.writes != writes) {
		s.reads, s.writes = reads, writes
		s.loop.poller.Change(s.fd, reads, writes)
	}
}

// read returns the received bytes, with at most most new ones: nil if there is nothing yet. The bytes are
// valid until the next call of any stream of the loop.
func (s *stream) read(most int) (b []byte, ok bool) {
	room := s.loop.input
	if len(s.in) > len(room)/2 { // a read of thousands of keys
		s.in = slices.Grow(s.in, len(room))
		room = s.in[:cap(s.in)]
	}
	kept := copy(room, s.in)
	n, empty, ok := readInto(s.fd, room[kept:min(len(room), kept+most)])
	if empty || !ok {
		return nil, ok
	}
	if len(s.in) <= len(s.loop.input)/2 {
		s.keep(nil)
	}
	return room[:kept+n], true
}

// readInto reads into room. empty: nothing has come yet.
func readInto(fd int, room []byte) (n int, empty, ok bool) {
	for {
		n, err := unix.Read(fd, room)
		switch {
		case err == unix.EAGAIN:
			return 0, true, true
		case err == unix.EINTR:
			continue
		case err != nil || n <= 0:
			return 0, false, false
		}
		return n, false, true
	}
}

// keep copies the bytes that can't be used yet.
func (s *stream) keep(b []byte) {
	if len(b) == 0 {
		s.loop.buffers.Put(s.in)
		s.in = nil
		return
	}
	if cap(s.in) > 0 && &b[0] == &s.in[:1][0] { // b is there already
		s.in = s.in[:len(b)]
		return
	}
	if cap(s.in) > eventloop.Largest && sameEnd(b, s.in) { // moving it repeatedly would take long
		s.in = b
		return
	}
	if s.in == nil {
		s.in = s.loop.buffers.Get(len(b))
	}
	s.in = append(s.in[:0], b...)
}

// sameEnd tells whether b is the rest of a buffer.
func sameEnd(b, of []byte) bool {
	return cap(b) <= cap(of) && &b[:cap(b)][cap(b)-1] == &of[:cap(of)][cap(of)-1]
}

func (s *stream) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.loop.poller.Remove(s.fd)
	s.loop.buffers.Put(s.out)
	s.loop.buffers.Put(s.in)
	s.out, s.in, s.sent = nil, nil, 0
}
