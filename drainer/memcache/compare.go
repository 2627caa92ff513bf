package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/item"
)

// Deletions is a run of deletes that only delete what hasn't changed.
type Deletions struct {
	buf []byte
	n   int
}

// Append adds the delete of the key's value if it has that CAS.
func (d *Deletions) Append(key []byte, cas uint64) error {
	form, ok := formOf(key, false)
	if !ok {
		return fmt.Errorf("key %.40q does not fit the text protocol", key)
	}
	d.buf = form.appendTo(append(d.buf, "md "...), key)
	d.buf = strconv.AppendUint(append(d.buf, " q C"...), cas, 10)
	d.buf = strconv.AppendInt(append(d.buf, " O"...), int64(d.n), 10)
	if form == base64Key {
		d.buf = append(d.buf, " b"...)
	}
	d.buf = append(d.buf, "\r\n"...)
	d.n++
	return nil
}

// Delete sends the run and returns which of its deletes, in the order they were
// appended in, found something else: those that found nothing are done.
func (c *Conn) Delete(d *Deletions) (changed []int, err error) {
	// The answers are few and short, but a server that can't send one reads no more.
	sent := make(chan error, 1)
	go func() { sent <- c.Send(append(d.buf, "mn\r\n"...)) }()
	changed, err = c.deleted(d.n)
	if err != nil {
		c.Close()
	}
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	return changed, err
}

func (c *Conn) deleted(n int) (changed []int, err error) {
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		switch {
		case string(line) == "MN":
			return changed, nil
		case bytes.HasPrefix(line, []byte("NF")): // some versions say so, others don't
			continue
		case bytes.HasPrefix(line, []byte("EX O")):
			if i, err := strconv.Atoi(string(line[len("EX O"):])); err == nil && i >= 0 && i < n {
				changed = append(changed, i)
				continue
			}
		}
		return nil, fmt.Errorf("%w to md: %.80q", ErrProtocol, line)
	}
}

// ErrRefused means that the server couldn't store an item: it is too large, or there is
// no room. Afterwards the server has no value for its key.
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
