package binary

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"

	"example.com/memcached-operator/drainer/wire"
)

// pending is a request that waits for its answer.
type pending struct {
	command
	opcode byte
	opaque uint32
	// keyText is the key in the text request.
	keyText []byte
	// local means that packet is the answer, whatever the text answer is.
	local bool
	// ends means that the connection is closed after the answer.
	ends bool
	packet
}

// packet is an answer.
type packet struct {
	status status
	cas    uint64
	extras []byte
	key    []byte
	body   []byte
	// rest is how many bytes of the body the caller sends.
	rest int
}

var (
	errBroken = errors.New("not memcached's protocol")
	errEnds   = errors.New("the connection ends")
)

// write writes an answer without its rest.
func (p *packet) write(w *bufio.Writer, opcode byte, opaque uint32) error {
	var b [headerSize]byte
	b[0], b[1] = magicAnswer, opcode
	binary.BigEndian.PutUint16(b[2:], uint16(len(p.key)))
	b[4] = byte(len(p.extras))
	binary.BigEndian.PutUint16(b[6:], uint16(p.status))
	binary.BigEndian.PutUint32(b[8:], uint32(len(p.extras)+len(p.key)+len(p.body)+p.rest))
	binary.BigEndian.PutUint32(b[12:], opaque)
	binary.BigEndian.PutUint64(b[16:], p.cas)
	for _, part := range [][]byte{b[:], p.extras, p.key, p.body} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// fail makes the packet an error with the status' usual text.
func (p *packet) fail(s status) { *p = packet{status: s, body: []byte(s.text())} }

// answer reads the text answer to a request, and writes it as packets.
func (p *pending) answer(w *bufio.Writer, text *bufio.Reader) error {
	line, err := text.ReadSlice('\n')
	if err != nil {
		return err
	}
	if p.kind == stat && bytes.HasPrefix(line, []byte("STAT ")) {
		return p.statistics(w, text, line)
	}
	var a wire.Answer
	a.Parse(wire.MetaValue, line)
	switch {
	case a.Code == wire.Broken:
		return errBroken
	case p.local:
	case a.Code == wire.Failure:
		p.failure(bytes.TrimRight(line, "\r\n"))
	case p.kind == get || p.kind == touch:
		return p.item(w, text, &a)
	case p.kind == count:
		err = p.number(text, &a)
	default:
		p.done(&a)
	}
	if err != nil || p.hidden() {
		return err
	}
	if err = p.write(w, p.opcode, p.opaque); err == nil && p.kind == login && !p.local && p.status != statusOK {
		return errEnds // a moment later than the translator, the loop has another password
	}
	return err
}

// hidden tells whether a quiet request gets no answer: writes that have succeeded, and reads without a hit. A
// failed read gets none either: clients such as Dalli take an answer without a key for the end of a list of
// hits, and the next hit for another request's answer.
func (p *pending) hidden() bool {
	if p.kind == get || p.kind == touch {
		return p.quiet && !p.ends
	}
	return p.quiet && p.status == statusOK
}

// failure handles an error in text.
func (p *pending) failure(line []byte) {
	_, message, _ := bytes.Cut(line, []byte(" "))
	begins := func(text string) bool { return bytes.HasPrefix(line, []byte(text)) }
	switch {
	case begins("CLIENT_ERROR cannot increment or decrement"):
		p.fail(statusNoNumber)
	case begins("CLIENT_ERROR unauthenticated"), begins("CLIENT_ERROR authentication failure"), begins("CLIENT_ERROR flush_all not allowed"):
		p.fail(statusLogin)
	case begins("SERVER_ERROR object too large"):
		p.fail(statusTooLarge)
	case begins("SERVER_ERROR out of memory"), begins("SERVER_ERROR Out of memory"):
		p.packet = packet{status: statusNoMemory, body: message}
	case begins("CLIENT_ERROR"):
		p.packet = packet{status: statusInvalid, body: message}
	case begins("SERVER_ERROR "):
		p.packet = packet{status: statusTemporary, body: message} // spymemcached leaves its connection after an internal error
	default:
		p.packet = packet{status: statusInternal, body: message}
	}
}

// done handles the answer to a request that returns no value.
func (p *pending) done(a *wire.Answer) {
	switch a.Code {
	case wire.Miss:
		if p.kind == extend {
			p.fail(statusNotStored)
			return
		}
		p.fail(statusNotFound)
	case wire.Exists:
		p.fail(statusExists)
	case wire.NotStored:
		p.fail(p.missing)
	default:
		p.cas = flag(a, 'c')
	}
}

// item handles the answer to a read.
func (p *pending) item(w *bufio.Writer, text *bufio.Reader, a *wire.Answer) error {
	switch a.Code {
	case wire.Value, wire.Header:
	case wire.Miss:
		if p.hidden() {
			return nil
		}
		if p.fail(statusNotFound); p.withKey {
			p.packet = packet{status: statusNotFound, key: p.keyText}
		}
		return p.write(w, p.opcode, p.opaque)
	default:
		return errBroken
	}
	flags := flag(a, 'f')
	p.cas = flag(a, 'c')
	p.extras = binary.BigEndian.AppendUint32(nil, uint32(flags))
	p.key, p.rest = p.keyText, max(a.Block-len("\r\n"), 0)
	if err := p.write(w, p.opcode, p.opaque); err != nil || a.Block == 0 {
		return err
	}
	if err := transfer(w, text, p.rest); err != nil {
		return err
	}
	_, err := text.Discard(len("\r\n"))
	return err
}

// number handles the answer to a count.
func (p *pending) number(text *bufio.Reader, a *wire.Answer) error {
	if a.Code != wire.Value {
		p.done(a)
		return nil
	}
	p.cas = flag(a, 'c')
	digits, err := text.ReadSlice('\n')
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 10, 64)
	if err != nil || len(digits) != a.Block {
		return errBroken
	}
	p.body = binary.BigEndian.AppendUint64(nil, n)
	return nil
}

// statistics writes a packet for each statistic, and an empty one.
func (p *pending) statistics(w *bufio.Writer, text *bufio.Reader, line []byte) error {
	for {
		_, rest, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte("STAT "))
		if !ok {
			p.packet = packet{}
			return p.write(w, p.opcode, p.opaque)
		}
		name, value, _ := bytes.Cut(rest, []byte(" "))
		p.packet = packet{key: name, body: value}
		if err := p.write(w, p.opcode, p.opaque); err != nil {
			return err
		}
		var err error
		if line, err = text.ReadSlice('\n'); err != nil {
			return err
		}
	}
}

// flag returns a number of a meta command's answer; 0 if there is none.
func flag(a *wire.Answer, letter byte) uint64 {
	_, rest := wire.Next(bytes.TrimRight(a.Line, "\r\n"))
	if a.Code == wire.Value {
		_, rest = wire.Next(rest)
	}
	for {
		var word []byte
		if word, rest = wire.Next(rest); len(word) == 0 {
			return 0
		}
		if word[0] == letter {
			n, err := strconv.ParseUint(string(word[1:]), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
}
