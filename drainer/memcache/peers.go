package memcache

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peers are those who have sent commands to a server lately.
type Peers struct {
	// connections of each address.
	connections map[string]int
}

// String names the three with the most connections.
func (p *Peers) String() string {
	const few = 3
	all := slices.SortedFunc(maps.Keys(p.connections), func(a, b string) int {
		return cmp.Or(p.connections[b]-p.connections[a], strings.Compare(a, b))
	})
	var b strings.Builder
	for i, address := range all[:min(few, len(all))] {
		word := "; connections: "
		if i > 0 {
			word = ", "
		}
		fmt.Fprintf(&b, "%s%s (%d)", word, address, p.connections[address])
	}
	if more := len(all) - few; more > 0 {
		fmt.Fprintf(&b, " and %d more addresses", more)
	}
	return b.String()
}

// Peers are those who have sent a command within so long, but for this connection. Those on the
// server's own machine don't count, unless this connection is from there, too: they are its
// supervisor.
func (c *Conn) Peers(within time.Duration) (*Peers, error) {
	if err := c.Send([]byte("stats conns\r\n")); err != nil {
		return nil, err
	}
	own := c.conn.LocalAddr().String()
	near := isLoopback(own)
	p, peer := &Peers{map[string]int{}}, ""
	// memcached has four lines for each connection, and its own limit of these.
	const most = 4 * 1 << 20
	for range most {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if string(line) == "END" {
			return p, nil
		}
		if !bytes.HasPrefix(line, []byte("STAT ")) {
			return nil, fmt.Errorf("%w to stats conns: %.80q", ErrProtocol, line)
		}
		_, stat, _ := strings.Cut(string(line[len("STAT "):]), ":")
		name, value, _ := strings.Cut(stat, " ")
		switch name {
		case "addr":
			_, peer, _ = strings.Cut(value, ":")
		case "state":
			if value == "conn_listening" {
				peer = ""
			}
		case "secs_since_last_cmd":
			seconds, err := strconv.ParseInt(value, 10, 64)
			host, _, hostErr := net.SplitHostPort(peer)
			if err == nil && hostErr == nil && seconds <= int64(within.Seconds()) && peer != own && (near || !isLoopback(peer)) {
				p.connections[host]++
			}
		}
	}
	return nil, fmt.Errorf("%w to stats conns: more than %d lines", ErrProtocol, most)
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && net.ParseIP(host).IsLoopback()
}
