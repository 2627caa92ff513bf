// Package crawl lists the items of a running memcached, by its LRU crawler.
package crawl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"time"

	"example.com/memcached-operator/drainer/memcache"
)

// How the crawler is asked, and how often it is asked again: it is busy after a start
// and with another listing, and locked while the hash table grows.
const (
	pause = 50 * time.Millisecond
	wait  = 5 * time.Minute
	// silence that ends a connection while it lists.
	silence = time.Minute
)

// ErrBusy means that the crawler can't answer now.
var ErrBusy = errors.New("the crawler is busy")

// Entry is one line of a list.
type Entry struct {
	Key []byte
	// ExpireAt and LastAccess are in Unix seconds; ExpireAt 0 never.
	ExpireAt, LastAccess int64
	// Size of the item in memcached, in bytes; 0 if it isn't told.
	Size int64
}

// List is what memcached has listed, spooled to a file without a name.
type List struct {
	file  *os.File
	len   int64
	bytes int64
	most  int64
	cut   bool
}

// Len is the number of entries.
func (l *List) Len() int64 { return l.len }

// Cut tells whether the list was ended at its largest size, before the listing's end:
// when its items are moved, the next list has others.
func (l *List) Cut() bool { return l.cut }

// Close closes the file.
func (l *List) Close() { l.file.Close() }

// Dial opens a connection for one listing.
type Dial func(ctx context.Context) (*memcache.Conn, error)

// Items lists all items of a server that keep wants, in a file in dir. If the version
// can, the crawler walks the hash table: then every item that is there from the
// beginning of the walk to its end is listed. Older versions walk the LRUs, where items
// move meanwhile. The number of keys has no bound: when the file has most bytes, the list is
// cut.
func Items(ctx context.Context, dial Dial, dir string, most int64, keep func(*Entry) bool) (*List, error) {
	file, err := os.CreateTemp(dir, "keys-")
	if err != nil {
		return nil, err
	}
	l := &List{file: file, most: most}
	if err = os.Remove(file.Name()); err == nil {
		err = l.dump(ctx, dial, "lru_crawler metadump hash", keep)
	}
	var unknown *unknownCommand
	if errors.As(err, &unknown) {
		err = l.dump(ctx, dial, "lru_crawler metadump all", keep)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// dump repeats a listing until the crawler is free for it.
func (l *List) dump(ctx context.Context, dial Dial, command string, keep func(*Entry) bool) error {
	return Patiently(ctx, func() error {
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		if _, err := l.file.Seek(0, 0); err != nil {
			return err
		}
		l.len, l.bytes, l.cut = 0, 0, false
		if err := conn.Send([]byte(command + "\r\n")); err != nil {
			return err
		}
		return l.spool(conn, keep)
	})
}

// Patiently repeats try while it returns ErrBusy, for some minutes.
func Patiently(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(wait)
	for {
		err := try()
		if !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// spool writes the entries of a listing to the list's file, up to its END.
func (l *List) spool(conn *memcache.Conn, keep func(*Entry) bool) error {
	w := bufio.NewWriterSize(l.file, 1<<20)
	var record []byte
	for n := 0; ; n++ {
		if n%1024 == 0 {
			if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
				return err
			}
		}
		line, err := conn.Line()
		if err != nil {
			return fmt.Errorf("list the items: %w", err)
		}
		end, err := End(line)
		if err != nil {
			return err
		}
		if end {
			return w.Flush()
		}
		if string(line) == "OK" {
			continue // goes ahead of the listing from 1.6.43 on
		}
		e, err := parseEntry(line)
		if err != nil {
			return err
		}
		if !keep(&e) {
			continue
		}
		record = e.appendTo(record[:0])
		if l.cut = l.bytes+int64(len(record)) > l.most; l.cut {
			return w.Flush() // the crawler ends with the connection
		}
		l.len++
		l.bytes += int64(len(record))
		w.Write(record) // the first error comes back from Flush
	}
}

// appendTo writes an entry as All reads it: the key after its length, and the numbers.
func (e *Entry) appendTo(b []byte) []byte {
	b = append(append(b, byte(len(e.Key))), e.Key...)
	for _, n := range []int64{e.ExpireAt, e.LastAccess, e.Size} {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func (e *Entry) readFrom(r *bufio.Reader) error {
	length, err := r.ReadByte()
	if err != nil {
		return err
	}
	e.Key = make([]byte, length)
	if _, err := io.ReadFull(r, e.Key); err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	for _, n := range []*int64{&e.ExpireAt, &e.LastAccess, &e.Size} {
		if *n, err = binary.ReadVarint(r); err != nil {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
	}
	return nil
}

// unknownCommand is an answer that says that the server doesn't know the command.
type unknownCommand struct{ answer string }

func (e *unknownCommand) Error() string { return "memcached answers " + e.answer }

// End tells whether a line ends the crawler's answer. If it isn't END, the error is
// ErrBusy, or says that the command isn't known.
func End(line []byte) (bool, error) {
	switch {
	case string(line) == "END":
		return true, nil
	case bytes.HasPrefix(line, []byte("BUSY")), bytes.HasPrefix(line, []byte("ERROR locked")):
		return true, ErrBusy
	case bytes.HasPrefix(line, []byte("ERROR")), bytes.HasPrefix(line, []byte("CLIENT_ERROR")), bytes.HasPrefix(line, []byte("BADCLASS")):
		return true, &unknownCommand{string(line)}
	}
	return false, nil
}

// All yields every entry, from the beginning; a key is valid as long as its caller wants.
// An error is the last thing yielded.
func (l *List) All() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		if _, err := l.file.Seek(0, 0); err != nil {
			yield(nil, err)
			return
		}
		r := bufio.NewReaderSize(l.file, 1<<20)
		for {
			e := &Entry{}
			switch err := e.readFrom(r); {
			case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
				return
			case err != nil:
				yield(nil, fmt.Errorf("read the list of items: %w", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// parseEntry reads a line of a listing: fields NAME=VALUE in any order, of which others
// are skipped. A line must have key, exp and la.
func parseEntry(line []byte) (Entry, error) {
	var e Entry
	var hasKey, hasExp, hasLA bool
	for field := range bytes.SplitSeq(line, []byte(" ")) {
		name, value, _ := bytes.Cut(field, []byte("="))
		var err error
		switch string(name) {
		case "key":
			hasKey = true
			e.Key, err = decodeKey(value)
		case "exp":
			hasExp = true
			if e.ExpireAt, err = strconv.ParseInt(string(value), 10, 64); e.ExpireAt == -1 {
				e.ExpireAt = 0
			}
		case "la":
			hasLA = true
			e.LastAccess, err = strconv.ParseInt(string(value), 10, 64)
		case "size": // not every version says it
			e.Size, err = strconv.ParseInt(string(value), 10, 64)
		}
		if err != nil {
			return e, fmt.Errorf("%w in a list of items: %.200q", memcache.ErrProtocol, line)
		}
	}
	if !hasKey || !hasExp || !hasLA || e.ExpireAt < 0 {
		return e, fmt.Errorf("%w in a list of items: %.200q", memcache.ErrProtocol, line)
	}
	return e, nil
}

// decodeKey undoes the URI encoding of a key.
func decodeKey(encoded []byte) ([]byte, error) {
	key := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '%' {
			if i+2 >= len(encoded) {
				return nil, errors.New("a key that ends in its encoding")
			}
			n, err := strconv.ParseUint(string(encoded[i+1:i+3]), 16, 8)
			if err != nil {
				return nil, err
			}
			c = byte(n)
			i += 2
		}
		key = append(key, c)
	}
	if len(key) < 1 || len(key) > 250 {
		return nil, fmt.Errorf("a key of %d bytes", len(key))
	}
	return key, nil
}
