package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/move"
	"example.com/memcached-operator/drainer/warmfile"
)

const (
	// silence bounds the time without an answer of the private memcached.
	silence = time.Minute
	// pipelined is the number of requests sent ahead of the answers.
	pipelined = 256
)

// list lists all items and compares their number with memcached's.
func (s *server) list(ctx context.Context, work string) (*move.List, error) {
	l, err := move.ListItems(ctx, s.dial, work, math.MaxInt64, func(*move.Entry) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("ask the private memcached: %w", err)
	}
	if err := s.reconcile(ctx, l.All()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// reconcile lets memcached remove the expired and flushed items, which it doesn't list either, and compares
// the rest with the list. Items that expire meanwhile, in the same second, may be on either side.
func (s *server) reconcile(ctx context.Context, list iter.Seq2[*move.Entry, error]) error {
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
	keys, surely, perhaps := int64(0), int64(0), int64(0)
	for e, err := range list {
		if err != nil {
			return err
		}
		keys++
		switch {
		case e.ExpireAt == 0 || e.ExpireAt > to+1:
		case e.ExpireAt < from-1:
			surely++
		default:
			perhaps++
		}
	}
	if most := keys - surely; left > most || left < most-perhaps {
		return warmfile.Refuse(warmfile.ReasonCountMismatch, "a list of all items: memcached lists %d, of which %d expired, and counts %d", keys, surely, left)
	}
	return nil
}

// crawl makes the crawler remove expired items.
func (s *server) crawl(ctx context.Context) error {
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = move.Patiently(ctx, func() error {
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
		_, err = move.EndsListing(line)
		return err
	})
	if err != nil {
		return err
	}
	return move.Patiently(ctx, func() error {
		stats, err := s.stats(ctx)
		if err == nil && stats["lru_crawler_running"] != "0" {
			err = move.ErrCrawlerBusy
		}
		return err
	})
}

// request asks for every item of the list, and sends the entries that it has asked for to asked.
func request(ctx context.Context, conn *memcache.Conn, l *move.List, asked chan<- move.Entry) error {
	var buf []byte
	var waiting []move.Entry
	send := func() error {
		// The entries are sent first, so that they are known by the time the answers come.
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
	for e, err := range l.All() {
		if err != nil {
			return err
		}
		if buf, err = memcache.AppendFetch(buf, e.Key); err != nil {
			return err
		}
		one := *e
		one.Key = bytes.Clone(e.Key)
		if waiting = append(waiting, one); len(waiting) == pipelined/2 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}
