package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"example.com/memcached-operator/drainer/contract"
)

// ErrNoCluster means that an endpoint for discovery names no servers.
var ErrNoCluster = errors.New("the endpoint for discovery names no servers")

// Cluster asks an endpoint for discovery (ElastiCache, Memorystore, our own) for the servers' addresses, in ring
// order. An endpoint that doesn't know the command is asked for the item that older ones have.
func (c *Conn) Cluster() ([]string, error) {
	for _, request := range []string{"config get cluster", "get " + contract.ListKey} {
		text, err := c.clusterText(request)
		if err != nil {
			return nil, err
		}
		if text != "" {
			return clusterOf(text)
		}
	}
	return nil, fmt.Errorf("%w: it doesn't know config get cluster", ErrNoCluster)
}

// clusterText returns the data block of an answer; "" if there is none.
func (c *Conn) clusterText(request string) (string, error) {
	line, err := c.roundTrip(request + "\r\n")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(line))
	const words = 4 // CONFIG cluster FLAGS SIZE, VALUE KEY FLAGS SIZE
	if len(fields) != words || fields[0] != "CONFIG" && fields[0] != "VALUE" {
		return "", nil
	}
	size, err := strconv.ParseUint(fields[3], 10, 31)
	if err != nil || size > contract.MaxList {
		return "", fmt.Errorf("%w to %s: %.80q", ErrProtocol, request, line)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(c.r, text); err != nil {
		return "", err
	}
	for range 3 { // the block's line end, and END
		if line, err = c.line(); err != nil || string(line) == "END" {
			break
		}
	}
	if err == nil && string(line) != "END" {
		err = fmt.Errorf("%w to %s: %.80q", ErrProtocol, request, line)
	}
	return string(bytes.TrimSpace(text)), err
}

// mostServers bounds a list.
const mostServers = 512

// clusterOf reads a list: a line with its version, and one with host|ip|port of each server.
func clusterOf(text string) (addresses []string, err error) {
	_, nodes, _ := strings.Cut(text, "\n")
	words := strings.Fields(nodes)
	if len(words) == 0 || len(words) > mostServers {
		return nil, fmt.Errorf("%w, but %d", ErrNoCluster, len(words))
	}
	for _, w := range words {
		parts := strings.Split(w, "|")
		if len(parts) != 3 || parts[0] == "" && parts[1] == "" {
			return nil, fmt.Errorf("%w, but %.80q, which is not host|ip|port", ErrNoCluster, w)
		}
		port, err := strconv.ParseUint(parts[2], 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%w, but %.80q, which is not host|ip|port", ErrNoCluster, w)
		}
		host := parts[0]
		if host == "" {
			host = parts[1]
		}
		addresses = append(addresses, net.JoinHostPort(host, parts[2]))
	}
	return addresses, nil
}
