package move

import (
	"bytes"
	"fmt"
	"strconv"

	"example.com/memcached-operator/drainer/memcache"
)

// watchedRequests is memcached's log of the requests for keys: those that read, store, change and delete an item, found or
// not. memcached leaves lines out when it has no time for them.
type watchedRequests struct {
	conn *memcache.Conn
	key  []byte
}

// watchRequests turns the connection into a watchedRequests. A memcached with -W refuses that.
func watchRequests(conn *memcache.Conn) (*watchedRequests, error) {
	if err := conn.Send([]byte("watch fetchers\r\n")); err != nil {
		return nil, err
	}
	line, err := conn.Line()
	if err == nil && string(line) != "OK" {
		err = fmt.Errorf("%w to watch fetchers: %.80q", memcache.ErrProtocol, line)
	}
	if err != nil {
		return nil, err
	}
	return &watchedRequests{conn: conn}, nil
}

// Next waits for the next request, and returns the key, valid until the next call, and the number that "stats
// conns" gives the connection.
func (r *watchedRequests) Next() (key []byte, conn int, err error) {
	for {
		line, err := r.conn.Line()
		if err != nil {
			return nil, 0, err
		}
		if r.parse(line, &conn) {
			return r.key, conn, nil
		}
	}
}

// parse reads a line. Only lines about requests have a key.
func (r *watchedRequests) parse(line []byte, conn *int) (is bool) {
	*conn = 0
	for field := range bytes.SplitSeq(line, []byte(" ")) {
		var err error
		switch {
		case hasName(field, "key="):
			is = true
			r.key, err = appendDecoded(r.key[:0], field[len("key="):])
		case hasName(field, "cfd="):
			*conn, err = strconv.Atoi(string(field[len("cfd="):]))
		}
		if err != nil {
			return false
		}
	}
	return is
}
