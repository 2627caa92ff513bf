package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/item"
)

// Deletions is a run of deletes by CAS, which only delete values that haven't changed. A delete that succeeds
// is not answered.
type Deletions struct {
	buf []byte
	n   int
}

// Reset empties the run.
func (d *Deletions) Reset() { d.buf, d.n = d.buf[:0], 0 }

// Append adds a delete of the key's value, on condition that it has that CAS.
func (d *Deletions) Append(key []byte, cas uint64) error {
	form, ok := formOf(key, false)
	if !ok {
		return fmt.Errorf("key %.40q does not fit the text protocol", key)
	}
	d.buf = form.appendTo(append(d.buf, "md "...), key)
	d.buf = strconv.AppendUint(append(d.buf, " C"...), cas, 10)
	if form == base64Key {
		d.buf = append(d.buf, " b"...)
	}
	d.buf = strconv.AppendInt(append(d.buf, " q O"...), int64(d.n), 10)
	d.buf = append(d.buf, "\r\n"...)
	d.n++
	return nil
}

// Deleted says which of a run's deletes found another value, or none, by the order of Append. All others
// succeeded.
type Deleted struct{ Changed, Missing []int }

// Len is the number of deletes.
func (d *Deletions) Len() int64 { return int64(d.n) }

// Delete sends the run and reads the answers.
func (c *Conn) Delete(d *Deletions) (Deleted, error) {
	if d.n == 0 {
		return Deleted{}, nil
	}
	// A server that can't send its answers stops reading.
	sent := make(chan error, 1)
	go func() { sent <- c.Send(append(d.buf, "mn\r\n"...)) }()
	deleted, err := c.deleted(d.n)
	if err != nil {
		c.Close()
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	return deleted, err
}

// deleted reads the answers to n deletes, up to the end of the run.
func (c *Conn) deleted(n int) (deleted Deleted, err error) {
	for range n + 1 {
		line, err := c.line()
		if err != nil {
			return Deleted{}, err
		}
		if string(line) == "MN" {
			return deleted, nil
		}
		_, token, _ := bytes.Cut(line, []byte(" O"))
		i, numberErr := strconv.ParseUint(string(bytes.TrimSpace(token)), 10, 31)
		switch {
		case numberErr != nil || int(i) >= n:
			return Deleted{}, fmt.Errorf("%w to md: %.80q", ErrProtocol, line)
		case bytes.HasPrefix(line, []byte("NF")):
			deleted.Missing = append(deleted.Missing, int(i))
		case bytes.HasPrefix(line, []byte("EX")):
			deleted.Changed = append(deleted.Changed, int(i))
		default:
			return Deleted{}, fmt.Errorf("%w to md: %.80q", ErrProtocol, line)
		}
	}
	return Deleted{}, fmt.Errorf("%w to md: more than %d answers", ErrProtocol, n)
}

// ErrRefused means that the server couldn't store an item: it is too large, or there is no room. Afterwards
// the server has no value for its key.
var ErrRefused = errors.New("the server refuses the item")

// Replace stores the item if the server's value has that CAS, and tells whether it did.
func (c *Conn) Replace(it *item.Item, cas uint64) (bool, error) {
	form, ok := formOf(it.Key, it.BinaryKey)
	if !ok {
		return false, fmt.Errorf("key %.40q does not fit the text protocol", it.Key)
	}
	var b strings.Builder
	b.WriteString("ms ")
	b.Write(form.appendTo(nil, it.Key))
	fmt.Fprintf(&b, " %d C%d F%d", len(it.Value), cas, it.Flags)
	if it.ExpireAt != 0 {
		fmt.Fprintf(&b, " T%d", wireExpiry(it.ExpireAt))
	}
	if form == base64Key {
		b.WriteString(" b")
	}
	b.WriteString("\r\n")
	b.Write(it.Value)
	line, err := c.roundTrip(b.String() + "\r\n")
	switch {
	case err != nil:
		return false, err
	case bytes.HasPrefix(line, []byte("HD")):
		return true, nil
	case bytes.HasPrefix(line, []byte("EX")), bytes.HasPrefix(line, []byte("NF")),
		bytes.HasPrefix(line, []byte("NS")):
		return false, nil
	case bytes.HasPrefix(line, []byte("SERVER_ERROR ")):
		return false, fmt.Errorf("%w: %s", ErrRefused, line)
	}
	return false, fmt.Errorf("%w to ms: %.80q", ErrProtocol, line)
}
