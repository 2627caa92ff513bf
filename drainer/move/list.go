package move

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
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
)

// Attempts to get the crawler: it is busy after a start and with another listing, and locked while the hash
// table grows.
const (
	busyPause = 50 * time.Millisecond
	busyFor   = 5 * time.Minute
	// listSilence bounds the time without an answer during a listing.
	listSilence = time.Minute
)

// ErrCrawlerBusy means that the crawler can't answer now.
var ErrCrawlerBusy = errors.New("the crawler is busy")

// Entry is one line of a list.
type Entry struct {
	Key []byte
	// ExpireAt and LastAccess are in Unix seconds; ExpireAt 0 never.
	ExpireAt, LastAccess int64
	// Size is the item's size in memcached, in bytes; 0 if memcached doesn't report it.
	Size int64
	// CAS is 0 if memcached keeps none.
	CAS uint64
}

// List is a list of items, spooled to an unnamed file.
type List struct {
	file  *os.File
	len   int64
	bytes int64
	most  int64
	cut   bool
	// byAge means that memcached walked its LRUs.
	byAge bool
	// mostLines bounds the lines of a listing, kept or not; 0 is no bound.
	mostLines int64
	// version is the server's, if it is so old that it lists by age only (firstByHash).
	version string
}

const (
	// firstByHash is the first version that lists the hash table. In older ones, the question alone unlocks a lock of the
	// crawler, even if another thread holds it.
	firstByHash = "1.6.9"
	// firstEnd is the first version that ends a listing by END. Older ones go back to reading requests, and may have
	// dropped the listing's last lines. So they are asked for their version, again and again: their answer is the end.
	firstEnd = "1.5.4"
	// askEvery is the time between two of these questions.
	askEvery = time.Second
)

// from sets the version of the server that is listed.
func (l *List) from(version string) {
	if memcache.IsOlder(version, firstByHash) {
		l.version = version
	}
}

// Len returns the number of entries.
func (l *List) Len() int64 { return l.len }

// Cut tells whether the list reached its maximum size before the listing's end. Once the listed items are
// moved, the next list has the rest.
func (l *List) Cut() bool { return l.cut }

// Close closes the file.
func (l *List) Close() { l.file.Close() }

// ListItems lists all items of a server that keep accepts, in a file in dir. If the version supports it, the
// crawler walks the hash table: then every item that exists during the whole walk is listed. Older versions
// walk the LRUs, where items move meanwhile. The number of keys has no bound: when the file has most bytes,
// the list is cut.
func ListItems(ctx context.Context, dial func(context.Context) (*memcache.Conn, error), dir string, most int64, keep func(*Entry) bool) (*List, error) {
	return (&List{most: most}).list(ctx, dial, dir, keep)
}

func (l *List) list(ctx context.Context, dial func(context.Context) (*memcache.Conn, error), dir string, keep func(*Entry) bool) (*List, error) {
	file, err := os.CreateTemp(dir, "keys-")
	if err != nil {
		return nil, &listFileError{err}
	}
	l.file = file
	if err = os.Remove(file.Name()); err != nil {
		err = &listFileError{err}
	} else if l.byAge = l.version != ""; !l.byAge {
		err = l.dump(ctx, dial, "lru_crawler metadump hash", keep)
		l.byAge = errors.As(err, new(*listRefusedError))
	}
	if l.byAge {
		err = l.dump(ctx, dial, "lru_crawler metadump all", keep)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// dump repeats a listing until the crawler is free for it.
func (l *List) dump(ctx context.Context, dial func(context.Context) (*memcache.Conn, error), command string, keep func(*Entry) bool) error {
	return Patiently(ctx, func() error {
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		if err := l.file.Truncate(0); err != nil {
			return &listFileError{err}
		}
		if _, err := l.file.Seek(0, 0); err != nil {
			return &listFileError{err}
		}
		l.len, l.bytes, l.cut = 0, 0, false
		if err := conn.Send([]byte(command + "\r\n")); err != nil {
			return err
		}
		if !memcache.IsOlder(l.version, firstEnd) {
			return l.spool(conn, func() {}, keep)
		}
		first, stop := l.askForEnd(conn)
		defer stop()
		return l.spool(conn, first, keep)
	})
}

// askForEnd asks a server that doesn't end its listing for its version: when first is called for the first line, and
// every second until stop is called. While it lists, it reads no requests. If it had read the question together with
// the request for the listing, it would answer only when it gets another one.
func (l *List) askForEnd(conn *memcache.Conn) (first, stop func()) {
	began, end := make(chan struct{}), make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		now, ticker := began, time.NewTicker(askEvery)
		defer ticker.Stop()
		for {
			select {
			case <-now:
				now = nil
			case <-ticker.C:
			case <-end:
				return
			}
			if conn.Send([]byte("version\r\n")) != nil {
				return // the reader sees that the connection is broken
			}
		}
	})
	return sync.OnceFunc(func() { close(began) }), func() {
		close(end)
		conn.Close() // a question may wait
		asking.Wait()
	}
}

// ends tells whether a line ends the listing of an old server: its answer to the question for its version, after what it
// has sent of a line that it has dropped.
func (l *List) ends(line []byte) bool {
	return l.version != "" && bytes.HasSuffix(line, []byte("VERSION "+l.version))
}

// Patiently repeats try while it returns ErrCrawlerBusy, for a few minutes.
func Patiently(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(busyFor)
	for {
		err := try()
		if !errors.Is(err, ErrCrawlerBusy) || time.Now().After(deadline) {
			return err
		}
		if err := pace.Sleep(ctx, busyPause); err != nil {
			return err
		}
	}
}

// spool writes the entries of a listing, up to its end, to the list's file. It calls first when it has a line.
func (l *List) spool(conn *memcache.Conn, first func(), keep func(*Entry) bool) error {
	w := bufio.NewWriterSize(l.file, 1<<20)
	var e Entry
	var record []byte
	for n := 0; ; n++ {
		if n%1024 == 0 {
			if err := conn.SetDeadline(time.Now().Add(listSilence)); err != nil {
				return err
			}
		}
		line, err := conn.Line()
		if err != nil {
			return fmt.Errorf("list the items: %w", err)
		}
		first()
		end, err := EndsListing(line)
		if err != nil {
			return err
		}
		if end || l.ends(line) {
			return written(w.Flush())
		}
		if string(line) == "OK" {
			continue // precedes the listing from 1.6.43 on
		}
		if l.mostLines > 0 && int64(n) >= l.mostLines {
			return fmt.Errorf("%w: a list of more than %d items", memcache.ErrProtocol, l.mostLines)
		}
		if err := e.parse(line); err != nil {
			return err
		}
		if !keep(&e) {
			continue
		}
		record = e.appendTo(record[:0])
		if l.cut = l.bytes+int64(len(record)) > l.most; l.cut {
			return written(w.Flush()) // the crawler ends with the connection
		}
		l.len++
		l.bytes += int64(len(record))
		if _, err := w.Write(record); err != nil {
			return written(err)
		}
	}
}

// listFileError is about the list's file, not about memcached: to ask memcached again would not help.
type listFileError struct{ err error }

func written(err error) error {
	if err == nil {
		return nil
	}
	return &listFileError{err}
}

func (e *listFileError) Error() string { return "the list of keys to be moved: " + e.err.Error() }
func (e *listFileError) Unwrap() error { return e.err }

// Failure returns the receipt's reason and the exit code. The next attempt may find room.
func (e *listFileError) Failure() (reason string, exitCode int) {
	return "ListNotWritten", contract.ExitFailed
}

// appendTo writes an entry in the form that readFrom reads: the key after its length, and the numbers.
func (e *Entry) appendTo(b []byte) []byte {
	b = append(append(b, byte(len(e.Key))), e.Key...)
	for _, n := range []int64{e.ExpireAt, e.LastAccess, e.Size} {
		b = binary.AppendVarint(b, n)
	}
	return binary.AppendUvarint(b, e.CAS)
}

// longestRecord is the most that appendTo writes, in bytes.
const longestRecord = 1 + 250 + 4*binary.MaxVarintLen64

// readFrom reads a record of appendTo. The key is valid until the next read; the end is io.EOF.
func (e *Entry) readFrom(r *bufio.Reader) error {
	record, err := r.Peek(longestRecord)
	if len(record) == 0 {
		return err
	}
	rest := record[1:]
	length := int(record[0])
	if len(rest) < length {
		return io.ErrUnexpectedEOF
	}
	e.Key, rest = rest[:length], rest[length:]
	for _, number := range []*int64{&e.ExpireAt, &e.LastAccess, &e.Size} {
		n := 0
		if *number, n = binary.Varint(rest); n <= 0 {
			return io.ErrUnexpectedEOF
		}
		rest = rest[n:]
	}
	n := 0
	if e.CAS, n = binary.Uvarint(rest); n <= 0 {
		return io.ErrUnexpectedEOF
	}
	rest = rest[n:]
	_, err = r.Discard(len(record) - len(rest))
	return err
}

// listRefusedError is a negative answer: memcached doesn't know the command, or runs with -X or without its
// crawler. A retry can't help.
type listRefusedError struct{ answer string }

func (e *listRefusedError) Error() string {
	return fmt.Sprintf("memcached does not list its items, it answers %.80q: start it without -X (--disable-dumping) and -o no_lru_crawler, "+
		"or set spec.routing.moves to Off", e.answer)
}

// Is makes the error match ErrProtocol, which is final.
func (e *listRefusedError) Is(target error) bool { return target == memcache.ErrProtocol }

// Failure returns the receipt's reason and the exit code.
func (e *listRefusedError) Failure() (reason string, exitCode int) {
	return "ListingRefused", contract.ExitUsage
}

// EndsListing tells whether a line ends the crawler's answer. If that line isn't END, the error is
// ErrCrawlerBusy or a listRefusedError.
func EndsListing(line []byte) (bool, error) {
	switch {
	case string(line) == "END", bytes.HasPrefix(line, []byte("NOTSTARTED")): // there is nothing to list
		return true, nil
	case bytes.HasPrefix(line, []byte("BUSY")), bytes.HasPrefix(line, []byte("ERROR locked")):
		return true, ErrCrawlerBusy
	case bytes.HasPrefix(line, []byte("ERROR")), bytes.HasPrefix(line, []byte("CLIENT_ERROR")), bytes.HasPrefix(line, []byte("BADCLASS")):
		return true, &listRefusedError{string(line)}
	}
	return false, nil
}

// All yields every entry, from the beginning; each is valid until the next one. An error is the
// last thing yielded.
func (l *List) All() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		if _, err := l.file.Seek(0, 0); err != nil {
			yield(nil, &listFileError{err})
			return
		}
		r := bufio.NewReaderSize(l.file, 64<<10)
		var e Entry
		for {
			switch err := e.readFrom(r); {
			case err == io.EOF: //nolint:errorlint // a record that ends too early is another error
				return
			case err != nil:
				yield(nil, &listFileError{err})
				return
			}
			if !yield(&e, nil) {
				return
			}
		}
	}
}

// parse reads a line of a listing: fields NAME=VALUE in any order; unknown ones are skipped. A line must have
// key, exp and la. The entry's key is overwritten.
func (e *Entry) parse(line []byte) error {
	*e = Entry{Key: e.Key[:0]}
	var hasKey, hasExp, hasLA bool
	for rest := line; len(rest) > 0; {
		field := rest
		if end := bytes.IndexByte(rest, ' '); end >= 0 {
			field, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		var err error
		switch {
		case hasName(field, "key="):
			hasKey = true
			e.Key, err = appendDecoded(e.Key[:0], field[len("key="):])
		case hasName(field, "exp="):
			hasExp = true
			if e.ExpireAt, err = parseNumber(field[len("exp="):]); e.ExpireAt == -1 {
				e.ExpireAt = 0
			}
		case hasName(field, "la="):
			hasLA = true
			e.LastAccess, err = parseNumber(field[len("la="):])
		case hasName(field, "cas="):
			e.CAS, err = strconv.ParseUint(string(field[len("cas="):]), 10, 64)
		case hasName(field, "size="): // not every version has it
			e.Size, err = parseNumber(field[len("size="):])
		}
		if err != nil {
			return notAnEntry(line)
		}
	}
	if !hasKey || !hasExp || !hasLA || e.ExpireAt < 0 {
		return notAnEntry(line)
	}
	return nil
}

// hasName tells whether a field has that name.
func hasName(field []byte, name string) bool {
	return len(field) >= len(name) && string(field[:len(name)]) == name
}

func parseNumber(text []byte) (int64, error) { return strconv.ParseInt(string(text), 10, 64) }

func notAnEntry(line []byte) error {
	return fmt.Errorf("%w in a list of items: %.200q", memcache.ErrProtocol, line)
}

// appendDecoded appends a key whose URI encoding is undone.
func appendDecoded(key, encoded []byte) ([]byte, error) {
	for i := 0; i < len(encoded); i++ {
		c := encoded[i]
		if c == '%' {
			if i+2 >= len(encoded) {
				return key, errors.New("a key that ends in its encoding")
			}
			n, err := strconv.ParseUint(string(encoded[i+1:i+3]), 16, 8)
			if err != nil {
				return key, err
			}
			c = byte(n)
			i += 2
		}
		key = append(key, c)
	}
	if len(key) < 1 || len(key) > 250 {
		return key, fmt.Errorf("a key of %d bytes", len(key))
	}
	return key, nil
}
