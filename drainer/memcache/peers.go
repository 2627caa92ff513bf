package memcache

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peers are the clients that have sent commands to a server recently.
type Peers struct {
	// connections has the number of connections of each address; others counts those of addresses beyond
	// mostAddresses.
	connections map[netip.Addr]int
	others      int
}

// mostAddresses bounds the memory, whatever the server answers.
const mostAddresses = 1 << 12

// String names the three addresses with the most connections.
func (p *Peers) String() string {
	const few = 3
	all := slices.SortedFunc(maps.Keys(p.connections), func(a, b netip.Addr) int {
		return cmp.Or(p.connections[b]-p.connections[a], a.Compare(b))
	})
	var b strings.Builder
	for i, address := range all[:min(few, len(all))] {
		word := "; connections: "
		if i > 0 {
			word = ", "
		}
		fmt.Fprintf(&b, "%s%s (%d)", word, address, p.connections[address])
	}
	switch more := len(all) - few; {
	case p.others > 0:
		fmt.Fprintf(&b, " and more than %d more addresses", more)
	case more > 0:
		fmt.Fprintf(&b, " and %d more addresses", more)
	}
	return b.String()
}

// Peers returns the clients that have sent a command within that time, without this connection: those with a
// connection that from accepts by its number, all if from is nil. Unless this connection is from the server's own
// machine, it leaves out those there, which are the server's supervisor, and those of this process's address.
func (c *Conn) Peers(within time.Duration, from func(conn int) bool) (*Peers, error) {
	if err := c.Send([]byte("stats conns\r\n")); err != nil {
		return nil, err
	}
	own, _ := netip.ParseAddrPort(c.conn.LocalAddr().String())
	near := own.Addr().IsLoopback()
	p, peer := &Peers{connections: map[netip.Addr]int{}}, netip.AddrPort{}
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
		number, stat, _ := strings.Cut(string(line[len("STAT "):]), ":")
		name, value, _ := strings.Cut(stat, " ")
		switch name {
		case "addr":
			_, address, _ := strings.Cut(value, ":")
			peer, _ = netip.ParseAddrPort(address)
			if conn, err := strconv.Atoi(number); from != nil && (err != nil || !from(conn)) {
				peer = netip.AddrPort{}
			}
		case "state":
			if value == "conn_listening" {
				peer = netip.AddrPort{}
			}
		case "secs_since_last_cmd":
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err == nil && peer.IsValid() && seconds <= int64(within.Seconds()) && peer != own && (near || !peer.Addr().IsLoopback() && peer.Addr() != own.Addr()) {
				p.note(peer.Addr().WithZone(""))
			}
		}
	}
	return nil, fmt.Errorf("%w to stats conns: more than %d lines", ErrProtocol, most)
}

func (p *Peers) note(address netip.Addr) {
	if p.connections[address] == 0 && len(p.connections) == mostAddresses {
		p.others++
		return
	}
	p.connections[address]++
}
