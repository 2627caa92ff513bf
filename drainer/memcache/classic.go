package memcache

import (
	"bytes"
	"fmt"
	"strconv"

	"example.com/memcached-operator/drainer/item"
)

// Sources of a copy may be older than the meta commands. Such sources are asked by gets, one key at a time,
// so that the answers are in the order of the requests.

// IsOlder tells whether a memcached of that version is older than another; false if it isn't a number.
func IsOlder(version, other string) bool {
	older, known := olderThan(version, other)
	return known && older
}

// HasClassicForm tells whether a key can be asked for by AppendGet.
func HasClassicForm(key []byte) bool {
	form, ok := formOf(key, false)
	return ok && form == plainKey
}

// AppendGets appends a request for a key's value, flags and CAS, which each version knows. AppendGot reads the
// answer. The key must have a classic form.
func AppendGets(b, key []byte) []byte {
	return append(append(append(b, "gets "...), key...), "\r\n"...)
}

// AppendGot reads the answer to AppendGets as AppendFetched does. The answer has no time to live.
func (c *Conn) AppendGot(v *Value, b []byte) (_ []byte, found bool, err error) {
	*v = Value{}
	line, err := c.line()
	if err != nil || string(line) == "END" {
		return b, false, err
	}
	fields := bytes.Fields(line)
	const words = 5 // VALUE, key, flags, size, CAS
	if len(fields) != words || string(fields[0]) != "VALUE" {
		return b, false, fmt.Errorf("%w to gets: %.80q", ErrProtocol, line)
	}
	flags, err := strconv.ParseUint(string(fields[2]), 10, 64)
	size, err2 := strconv.ParseUint(string(fields[3]), 10, 31)
	cas, err3 := strconv.ParseUint(string(fields[4]), 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return b, false, fmt.Errorf("%w to gets: %.80q", ErrProtocol, line)
	}
	v.Flags, v.CAS = flags, cas
	if b, found, err = c.appendData(v, b, int(size)); err != nil {
		return b, false, err
	}
	if line, err = c.line(); err == nil && string(line) != "END" {
		err = fmt.Errorf("%w to gets: %.80q", ErrProtocol, line)
	}
	return b, found, err
}

// AppendLook appends a request for the CAS of a key's item. Looked reads the answer. Neither changes the item's
// position in the LRU.
func AppendLook(b, key []byte) ([]byte, error) { return appendGet(b, key, " c u\r\n") }

// Looked reads the answer to AppendLook.
func (c *Conn) Looked() (cas uint64, found bool, err error) {
	line, err := c.line()
	if err != nil || bytes.HasPrefix(line, []byte("EN")) {
		return 0, false, err
	}
	rest, is := bytes.CutPrefix(line, []byte("HD"))
	var v Value
	for len(rest) > 0 && err == nil {
		var f []byte
		if f, rest = nextField(rest); len(f) > 0 {
			err = v.set(f[0], f[1:])
		}
	}
	if !is || err != nil {
		return 0, false, fmt.Errorf("%w to mg: %.80q", ErrProtocol, line)
	}
	return v.CAS, true, nil
}

// AppendAdd appends a request that adds an item, and is answered by STORED or HD if it did: a classic add, or an ms for a
// key that has no classic form.
func AppendAdd(b []byte, it *item.Item) []byte {
	form, _ := formOf(it.Key, it.BinaryKey)
	if form == plainKey {
		b = append(append(b, "add "...), it.Key...)
		b = strconv.AppendUint(append(b, ' '), it.Flags, 10)
		b = strconv.AppendInt(append(b, ' '), wireExpiry(it.ExpireAt), 10)
		b = strconv.AppendInt(append(b, ' '), int64(len(it.Value)), 10)
	} else {
		b = form.appendTo(append(b, "ms "...), it.Key)
		b = strconv.AppendInt(append(b, ' '), int64(len(it.Value)), 10)
		b = strconv.AppendUint(append(b, " b ME F"...), it.Flags, 10)
		b = strconv.AppendInt(append(b, " T"...), wireExpiry(it.ExpireAt), 10)
	}
	return append(append(append(b, "\r\n"...), it.Value...), "\r\n"...)
}
