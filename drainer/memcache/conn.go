// Package memcache speaks to memcached servers. A plain connection is for statistics and single items. A
// Writer adds items at the speed of the server, pipelined, over connections that it re-establishes itself.
package memcache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// ErrProtocol means that the server answered something that no memcached should. The rest of the connection
// can't be trusted.
var ErrProtocol = errors.New("unexpected answer")

// Conn is a plain connection, for one request at a time.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	most int
}

// Bound makes AppendFetched and AppendGot leave out the data of values of more than most bytes: such a value is
// read, not kept, and marked (Value.TooLarge). 0 is no bound.
func (c *Conn) Bound(most int) { c.most = most }

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// SetDeadline bounds every request from now on.
func (c *Conn) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// SetReadDeadline bounds the answers from now on.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Stats returns the answer to "stats", or "stats ARG" if arg isn't empty.
func (c *Conn) Stats(arg string) (map[string]string, error) {
	if _, err := io.WriteString(c.conn, strings.TrimRight("stats "+arg, " ")+"\r\n"); err != nil {
		return nil, err
	}
	return c.heardStats(arg)
}

// heardStats reads the answer.
func (c *Conn) heardStats(arg string) (map[string]string, error) {
	stats := map[string]string{}
	for range maxStats {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if string(line) == "END" {
			return stats, nil
		}
		name, value, ok := bytes.Cut(bytes.TrimPrefix(line, []byte("STAT ")), []byte(" "))
		if !ok || !bytes.HasPrefix(line, []byte("STAT ")) {
			return nil, fmt.Errorf("%w to stats %s: %.80q", ErrProtocol, arg, line)
		}
		stats[string(name)] = string(value)
	}
	return nil, fmt.Errorf("%w to stats %s: more than %d lines", ErrProtocol, arg, maxStats)
}

// maxStats bounds the lines of an answer to stats: memcached has about 150, and 13 more for each of 63 slab
// classes.
const maxStats = 4096

// Ping checks that the server speaks the meta protocol.
func (c *Conn) Ping() error {
	line, err := c.roundTrip("mn\r\n")
	if err == nil && string(line) != "MN" {
		return fmt.Errorf("%w to mn: %.80q; memcached %s or later is needed", ErrProtocol, line, contract.OldestMemcached)
	}
	return err
}

// Value is a server's value for a key.
type Value struct {
	Data  []byte
	Flags uint64
	CAS   uint64
	// TTL is the number of seconds left; -1 if the value never expires.
	TTL int64
	// Idle is the number of seconds since the last access; only AppendFetch asks for it.
	Idle int64
	// Stale means that a client marked the value as outdated.
	Stale bool
	// Claimed means that a client was told to store a value, and hasn't yet.
	Claimed bool
	// TooLarge means that the value's data was left out (Conn.Bound).
	TooLarge bool
	// BinaryKey means that the key was stored base64-encoded, although it is text; only AppendFetch asks for
	// it.
	BinaryKey bool
}

// Outdated tells whether a client has marked the value as stale, or was told to store one and hasn't yet.
func (v *Value) Outdated() bool { return v.Stale || v.Claimed && len(v.Data) == 0 }

// ExpireAt returns when the value expires, by the clock of its server, which reads now; 0 if never. known is
// the exact time, or 0; known is used unless a client has set another time since.
func (v *Value) ExpireAt(known, now int64) int64 {
	const exact = 2 // seconds
	switch at := now + v.TTL; {
	case v.TTL < 0:
		return 0
	case known != 0 && max(at-known, known-at) <= exact:
		return known
	default:
		return at
	}
}

// Get returns the server's value for key, nil if there is none. Get doesn't change the item's position in
// the LRU.
func (c *Conn) Get(key []byte) (*Value, error) {
	request, err := appendGet(nil, key, getFlags)
	if err != nil {
		return nil, err
	}
	if err := c.Send(request); err != nil {
		return nil, err
	}
	return c.Fetched()
}

// getFlags ask for a value, its client flags, time to live and CAS, and leave the item where it is in the LRU.
const getFlags = " v f t c u\r\n"

// CAS returns the CAS of the server's item for key, 0 if there is no item, or the server has no CAS. Unlike
// Get, CAS isn't counted in the server's statistics of gets.
func (c *Conn) CAS(key []byte) (uint64, error) {
	form, ok := formOf(key, false)
	if !ok || form != plainKey {
		return 0, fmt.Errorf("key %.40q does not fit the text protocol", key)
	}
	line, err := c.roundTrip("me " + string(key) + "\r\n")
	if err != nil || string(line) == "EN" {
		return 0, err
	}
	fields := strings.Fields(string(line))
	if len(fields) < 2 || fields[0] != "ME" {
		return 0, fmt.Errorf("%w to me: %.80q", ErrProtocol, line)
	}
	for _, f := range fields[2:] {
		if value, ok := strings.CutPrefix(f, "cas="); ok {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%w to me: %.80q", ErrProtocol, line)
}

// AppendFetch appends the request for everything that the server has for key. Fetched reads the answers, in
// the order of the requests.
func AppendFetch(b, key []byte) ([]byte, error) {
	if form, _ := formOf(key, false); form == base64Key {
		// The request doesn't ask for the key: some versions answer with its bytes unencoded.
		return appendGet(b, key, " v f t c l u\r\n")
	}
	return appendGet(b, key, " v f t c l u k\r\n")
}

// HasTextForm tells whether the text protocol can carry the key. Other protocols can also store keys of
// more than 186 bytes that have spaces, line ends or zeros.
func HasTextForm(key []byte) bool {
	_, ok := formOf(key, false)
	return ok
}

// AppendKey appends the key as meta commands name it. base64 means that it is encoded, and the commands need
// the flag b. AppendKey returns an error if the text protocol can't carry the key.
func AppendKey(b, key []byte) (text []byte, base64 bool, err error) {
	form, ok := formOf(key, false)
	if !ok {
		return b, false, fmt.Errorf("key %.40q does not fit the text protocol", key)
	}
	return form.appendTo(b, key), form == base64Key, nil
}

func appendGet(b, key []byte, flags string) ([]byte, error) {
	form, ok := formOf(key, false)
	if !ok {
		return b, fmt.Errorf("key %.40q does not fit the text protocol", key)
	}
	b = form.appendTo(append(b, "mg "...), key)
	if form == base64Key {
		b = append(b, " b"...)
	}
	return append(b, flags...), nil
}

// Fetched returns the answer to one request, nil if the server has no value.
func (c *Conn) Fetched() (*Value, error) {
	v := &Value{}
	if _, found, err := c.AppendFetched(v, nil); err != nil || !found {
		return nil, err
	}
	return v, nil
}

// AppendFetched reads the answer to one request into v, whose Data it appends to b. found is false if the
// server has no value.
func (c *Conn) AppendFetched(v *Value, b []byte) (_ []byte, found bool, err error) {
	*v = Value{}
	line, err := c.line()
	if err != nil || bytes.HasPrefix(line, []byte("EN")) {
		return b, false, err
	}
	size, err := v.parse(line)
	if err != nil {
		return b, false, err
	}
	return c.appendData(v, b, size)
}

// appendData reads a data block into v, whose Data it appends to b.
func (c *Conn) appendData(v *Value, b []byte, size int) (_ []byte, found bool, err error) {
	if c.most > 0 && size > c.most {
		v.TooLarge = true
		_, err := io.CopyN(io.Discard, c.r, int64(size+len("\r\n")))
		return b, err == nil, err
	}
	// Memory is only allocated for bytes that have arrived, whatever size the server announces.
	const step = 1 << 20
	start := len(b)
	for left := size + len("\r\n"); left > 0; {
		from := len(b)
		b = slices.Grow(b, min(left, step))[:from+min(left, step)]
		left -= len(b) - from
		if _, err := io.ReadFull(c.r, b[from:]); err != nil {
			return b, false, err
		}
	}
	b, ended := bytes.CutSuffix(b, []byte("\r\n"))
	if !ended {
		return b, false, fmt.Errorf("%w: no line end after a value of %d bytes", ErrProtocol, size)
	}
	v.Data = b[start:len(b):len(b)]
	return b, true, nil
}

// parse reads a "VA" line, and returns the size of the data block that follows.
func (v *Value) parse(line []byte) (size int, err error) {
	rest, isValue := bytes.CutPrefix(line, []byte("VA "))
	number, rest := nextField(rest)
	n, err := strconv.ParseUint(string(number), 10, 31)
	for err == nil && len(rest) > 0 {
		var f []byte
		if f, rest = nextField(rest); len(f) > 0 {
			err = v.set(f[0], f[1:])
		}
	}
	if !isValue || err != nil {
		return 0, fmt.Errorf("%w to mg: %.80q", ErrProtocol, line)
	}
	return int(n), nil
}

// nextField returns the first field; it is empty if there is one space too many.
func nextField(fields []byte) (field, rest []byte) {
	if end := bytes.IndexByte(fields, ' '); end >= 0 {
		return fields[:end], fields[end+1:]
	}
	return fields, nil
}

// set reads one flag of a "VA" line; it ignores unknown ones.
func (v *Value) set(flag byte, token []byte) (err error) {
	switch flag {
	case 'X':
		v.Stale = true
	case 'Z':
		v.Claimed = true
	case 'b':
		v.BinaryKey = true
	case 'f':
		v.Flags, err = strconv.ParseUint(string(token), 10, 64)
	case 't':
		v.TTL, err = strconv.ParseInt(string(token), 10, 64)
	case 'l':
		if v.Idle, err = strconv.ParseInt(string(token), 10, 64); v.Idle > math.MaxInt32 {
			v.Idle = 0 // the server's clock was set back, and the number is below 0
		}
	case 'c':
		v.CAS, err = strconv.ParseUint(string(token), 10, 64)
	}
	return err
}

// Send sends requests whose answers are read line by line.
func (c *Conn) Send(request []byte) error {
	_, err := c.conn.Write(request)
	return err
}

// Read reads the server's bytes as they are.
func (c *Conn) Read(b []byte) (int, error) { return c.r.Read(b) }

// Line returns the next line of an answer without its line end; it is valid until the next read.
func (c *Conn) Line() ([]byte, error) { return c.line() }

func (c *Conn) roundTrip(request string) ([]byte, error) {
	if _, err := io.WriteString(c.conn, request); err != nil {
		return nil, err
	}
	return c.line()
}

// line returns the next line without its line end; it is valid until the next read.
func (c *Conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			err = fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, c.r.Size())
		}
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// RefreshCertificates makes the server read its certificate files again.
func (c *Conn) RefreshCertificates(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	answer, err := c.roundTrip("refresh_certs\r\n")
	if err == nil && string(answer) != "OK" {
		return fmt.Errorf("refresh_certs: %s", answer)
	}
	return err
}
