package restart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/warmfile"
)

// How the crawler is asked, and how often again: it is busy after a start, and
// locked while the hash table grows.
const (
	crawlPause = 50 * time.Millisecond
	crawlWait  = 5 * time.Minute
	// silence that ends a connection to the private memcached.
	silence = time.Minute
	// pipelined is the number of requests sent ahead of the answers.
	pipelined = 256
)

// errBusy: the crawler can't answer now.
var errBusy = errors.New("the crawler is busy")

// entry is one line of the list.
type entry struct {
	key []byte
	// expireAt and lastAccess are in Unix seconds; expireAt 0 never.
	expireAt, lastAccess int64
}

// keyList is what memcached lists, spooled to a file: asking for the items while
// they are being listed could move them.
type keyList struct {
	file *os.File
	keys int64
}

func (l *keyList) close() { l.file.Close() }

// list lists all items and reconciles them with what memcached counts.
func (s *server) list(ctx context.Context, work string) (*keyList, error) {
	file, err := os.CreateTemp(work, "keys-")
	if err != nil {
		return nil, err
	}
	l := &keyList{file: file}
	commands := []string{"lru_crawler metadump hash", "lru_crawler metadump all"}
	err = s.dump(ctx, l, commands[0])
	var unknown *unknownCommand
	if errors.As(err, &unknown) {
		err = s.dump(ctx, l, commands[1]) // versions that know no "hash"
	}
	if err == nil {
		err = s.reconcile(ctx, l)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// dump repeats a listing until the crawler is free for it.
func (s *server) dump(ctx context.Context, l *keyList, command string) error {
	return s.patiently(ctx, func() error {
		conn, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		if _, err := l.file.Seek(0, 0); err != nil {
			return err
		}
		l.keys = 0
		if err := conn.Send([]byte(command + "\r\n")); err != nil {
			return err
		}
		return l.spool(conn)
	})
}

// patiently repeats try while the crawler is busy.
func (s *server) patiently(ctx context.Context, try func() error) error {
	deadline := time.Now().Add(crawlWait)
	for {
		err := try()
		if !errors.Is(err, errBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(crawlPause):
		}
	}
}

// spool writes the lines of a listing to the list's file, up to its END.
func (l *keyList) spool(conn *memcache.Conn) error {
	w := bufio.NewWriterSize(l.file, 1<<20)
	for {
		if l.keys%1024 == 0 {
			if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
				return err
			}
		}
		line, err := conn.Line()
		if err != nil {
			return fmt.Errorf("list the items: %w", err)
		}
		end, err := crawlerEnd(line)
		if err != nil {
			return err
		}
		if end {
			return w.Flush()
		}
		if string(line) == "OK" {
			continue // goes ahead of the listing from 1.6.43 on
		}
		if _, err := parseEntry(line); err != nil {
			return err
		}
		l.keys++
		w.Write(line) // the first error comes back from Flush
		w.WriteString("\n")
	}
}

// unknownCommand is an answer that turns a command down for good.
type unknownCommand struct{ answer string }

func (e *unknownCommand) Error() string { return "the private memcached answers " + e.answer }

// crawlerEnd tells whether a line ends the crawler's answer.
func crawlerEnd(line []byte) (end bool, err error) {
	switch {
	case string(line) == "END":
		return true, nil
	case bytes.HasPrefix(line, []byte("BUSY")), bytes.HasPrefix(line, []byte("ERROR locked")):
		return true, errBusy
	case bytes.HasPrefix(line, []byte("ERROR")), bytes.HasPrefix(line, []byte("CLIENT_ERROR")), bytes.HasPrefix(line, []byte("BADCLASS")):
		return true, &unknownCommand{string(line)}
	}
	return false, nil
}

// parseEntry reads a line of a listing: fields NAME=VALUE in any order; others
// than these are skipped.
func parseEntry(line []byte) (entry, error) {
	var e entry
	seen := 0
	for field := range bytes.SplitSeq(line, []byte(" ")) {
		name, value, _ := bytes.Cut(field, []byte("="))
		var err error
		switch string(name) {
		case "key":
			e.key, err = decodeKey(value)
		case "exp":
			if e.expireAt, err = strconv.ParseInt(string(value), 10, 64); e.expireAt == -1 {
				e.expireAt = 0
			}
		case "la":
			e.lastAccess, err = strconv.ParseInt(string(value), 10, 64)
		default:
			continue
		}
		if err != nil {
			return e, fmt.Errorf("%w in a list of items: %.200q", memcache.ErrProtocol, line)
		}
		seen++
	}
	if seen != 3 || e.expireAt < 0 {
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

// reconcile lets memcached remove what has expired or was flushed, which it
// doesn't list either, and compares what is left with the list. Items whose time
// came meanwhile, by the second, may be on either side.
func (s *server) reconcile(ctx context.Context, l *keyList) error {
	before, err := s.stats(ctx)
	if err != nil {
		return err
	}
	if err := s.crawl(ctx); err != nil {
		return err
	}
	after, err := s.stats(ctx)
	if err != nil {
		return err
	}
	left, err := strconv.ParseInt(after["curr_items"], 10, 64)
	if err != nil {
		return fmt.Errorf("the private memcached says curr_items=%q", after["curr_items"])
	}
	from, _ := strconv.ParseInt(before["time"], 10, 64)
	to, _ := strconv.ParseInt(after["time"], 10, 64)
	surely, perhaps := int64(0), int64(0)
	err = l.each(func(e entry) error {
		switch {
		case e.expireAt == 0 || e.expireAt > to+1:
		case e.expireAt < from-1:
			surely++
		default:
			perhaps++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if most := l.keys - surely; left > most || left < most-perhaps {
		return warmfile.Refuse(warmfile.ReasonCountMismatch, "a list of all items: memcached lists %d, of which %d expired, and counts %d", l.keys, surely, left)
	}
	return nil
}

// crawl lets the crawler remove what is past its time.
func (s *server) crawl(ctx context.Context) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = s.patiently(ctx, func() error {
		if err := errors.Join(conn.SetDeadline(time.Now().Add(silence)), conn.Send([]byte("lru_crawler crawl all\r\n"))); err != nil {
			return err
		}
		line, err := conn.Line()
		if err != nil {
			return fmt.Errorf("remove expired items: %w", err)
		}
		if strings.HasPrefix(string(line), "OK") {
			return nil
		}
		_, err = crawlerEnd(line)
		return err
	})
	if err != nil {
		return err
	}
	return s.patiently(ctx, func() error {
		stats, err := s.stats(ctx)
		if err == nil && stats["lru_crawler_running"] != "0" {
			err = errBusy
		}
		return err
	})
}

// each calls do for every entry, from the beginning.
func (l *keyList) each(do func(entry) error) error {
	if _, err := l.file.Seek(0, 0); err != nil {
		return err
	}
	lines := bufio.NewScanner(l.file)
	for lines.Scan() {
		e, err := parseEntry(lines.Bytes())
		if err == nil {
			err = do(e)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// request asks for every item of the list, and tells in asked what it asked for.
func request(ctx context.Context, conn *memcache.Conn, l *keyList, asked chan<- entry) error {
	var buf []byte
	var waiting []entry
	send := func() error {
		// Told first: somebody reads the answers by the time they come.
		for _, e := range waiting {
			select {
			case asked <- e:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := conn.Send(buf)
		buf, waiting = buf[:0], waiting[:0]
		return err
	}
	err := l.each(func(e entry) (err error) {
		if buf, err = memcache.AppendFetch(buf, e.key); err != nil {
			return err
		}
		if waiting = append(waiting, e); len(waiting) == pipelined/2 {
			return send()
		}
		return nil
	})
	if err == nil {
		err = send()
	}
	return err
}
