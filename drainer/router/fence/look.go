package fence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
)

// watch looks at a member's number periodically, over a connection of its own.
func (f *Fence) watch(ctx context.Context, w *watched, address string) {
	var c *memcache.Conn
	hangUp := func() {
		if c != nil {
			_ = c.Close()
			c = nil
		}
	}
	defer func() { hangUp() }()
	for ctx.Err() == nil {
		if round, t := f.next(w); t != nil {
			var err error
			if c, err = f.look(ctx, c, address, t); err != nil {
				hangUp()
			}
			f.done(w, round)
		}
		period := f.config.LookPeriod
		select {
		case <-ctx.Done():
		case <-w.kick:
		case <-time.After(period*3/4 + rand.N(period/2)):
		}
	}
}

// next returns the round of the next look, and the table whose number the member is given; nil for no look. A
// router that was left behind waits for its table without looks: their requests would keep a leaving member
// from ending.
func (f *Fence) next(w *watched) (round int, t *Table) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if applied := f.applied.Load().Number; f.Outdated(applied) && f.read.Number <= applied && w.round == f.round {
		return 0, nil
	}
	return f.round, f.read
}

// done records that a member was looked at, or could not be reached.
func (f *Fence) done(w *watched, round int) {
	f.mu.Lock()
	w.round = round
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// look reads a member's number, and updates it to the table's. look returns the connection.
func (f *Fence) look(ctx context.Context, c *memcache.Conn, address string, t *Table) (*memcache.Conn, error) {
	looking, cancel := context.WithTimeout(ctx, f.config.LookTimeout)
	defer cancel()
	if c == nil {
		var err error
		if c, err = f.config.Dialer.Dial(looking, address); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(looking, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(f.config.LookTimeout))
	for range 3 { // other routers may write it at the same time
		value, cas, err := numberAt(c)
		if err != nil {
			return c, err
		}
		number := contract.ParseRingNumber(value, t.Key, contract.ClockOf(t.Number))
		f.found(number, t)
		if number >= t.Number {
			break
		}
		if stored, err := storeNumber(c, contract.RingNumber(t.Number, t.Key), value == nil, cas); stored || err != nil {
			return c, err
		}
	}
	return c, nil
}

// found handles a member's number.
func (f *Fence) found(number int64, t *Table) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now()
	switch {
	case !f.looked:
		if at = (time.Time{}); number < t.Number {
			f.older = max(f.older, number)
		}
	case f.mustLook(): // the number may have been there for long
		at = time.Time{}
	}
	if number > t.Number {
		f.sight(sighting{number: number, at: at})
	}
}

// numberAt returns a member's number: nil if it has none. cas is 0 if the member keeps no CAS values.
func numberAt(c *memcache.Conn) (value []byte, cas uint64, err error) {
	if err := c.Send([]byte("gets " + contract.RingNumberKey + "\r\n")); err != nil {
		return nil, 0, err
	}
	line, err := c.Line()
	if err != nil || string(line) == "END" {
		return nil, 0, err
	}
	words := bytes.Fields(line)
	if len(words) != 5 || string(words[0]) != "VALUE" {
		return nil, 0, fmt.Errorf("%w to gets: %.80q", memcache.ErrProtocol, line)
	}
	size, err := strconv.ParseInt(string(words[3]), 10, 32)
	if err == nil {
		cas, err = strconv.ParseUint(string(words[4]), 10, 64)
	}
	if err != nil || size < 0 {
		return nil, 0, fmt.Errorf("%w to gets: %.80q", memcache.ErrProtocol, line)
	}
	if value = []byte{}; size > contract.MaxRingNumber { // not a router's
		_, err = io.CopyN(io.Discard, c, size)
	} else {
		value = make([]byte, size)
		_, err = io.ReadFull(c, value)
	}
	for range 2 { // the value's line, and END
		if err == nil {
			_, err = c.Line()
		}
	}
	return value, cas, err
}

// storeNumber stores the number, if the member has none, or the one with that CAS value, and tells whether it
// did.
func storeNumber(c *memcache.Conn, value string, first bool, cas uint64) (stored bool, err error) {
	verb, guard := "cas", fmt.Sprintf(" %d", cas)
	switch {
	case first:
		verb, guard = "add", ""
	case cas == 0: // another router's number may be lost, until that router looks again
		verb, guard = "set", ""
	}
	request := fmt.Sprintf("%s %s 0 0 %d%s\r\n%s\r\n", verb, contract.RingNumberKey, len(value), guard, value)
	if err := c.Send([]byte(request)); err != nil {
		return false, err
	}
	line, err := c.Line()
	if err != nil {
		return false, err
	}
	switch string(line) {
	case "STORED":
		return true, nil
	case "NOT_STORED", "EXISTS", "NOT_FOUND":
		return false, nil
	}
	return false, fmt.Errorf("%w to a store: %.80q", memcache.ErrProtocol, line)
}
