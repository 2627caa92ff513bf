package contract

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ListKey is the item in which clients of ElastiCache's protocol find the list if a member doesn't know the
// protocol's command. The supervisor keeps the item up to date; drains and moves leave it out.
const ListKey = "AmazonElastiCache:cluster"

// OutdatedPrefix begins the keys of items by which routers remember that another cache's value is outdated
// (package onmiss). Such items move as clients' items do, but are never copied to another cluster.
const OutdatedPrefix = "memcached-operator:outdated:"

// OutdatedAll is the item that stands for all keys, after a flush_all.
const OutdatedAll = OutdatedPrefix + "all"

// OutdatedKey returns the key of the item that stands for a client's key.
func OutdatedKey(key []byte) string {
	sum := sha256.Sum256(key)
	const enough = 16
	return OutdatedPrefix + base64.RawURLEncoding.EncodeToString(sum[:enough])
}

// CopiedPrefix begins the keys of the items by which members remember how far a copy from volumes is (Copy.Resume).
const CopiedPrefix = "memcached-operator:copied:"

// IsMembersOwn tells whether each member has an item of its own with this key. Supervisors, routers and copies keep
// these items up to date, so drains and moves leave them out.
func IsMembersOwn(key []byte) bool {
	return string(key) == ListKey || string(key) == RingNumberKey || len(key) > len(CopiedPrefix) && string(key[:len(CopiedPrefix)]) == CopiedPrefix
}

// List is the list of members that clients are given, as in ElastiCache's discovery protocol.
type List struct {
	// Version grows with each change: clients ignore a list with a smaller one.
	Version int64
	// Nodes are in ring order.
	Nodes []Node
}

// Node is a member on the list.
type Node struct {
	// Host is the node's name, IP its address.
	Host, IP string
	Port     int32
}

// Bounds of a list. Lists are read from pod annotations, which other writers can change.
const (
	maxNodes = 512
	// MaxList bounds a list's text, in bytes.
	MaxList = 192 << 10
)

// String returns the list in two lines, each with a line end: the version, and host|ip|port of each node.
func (l *List) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", l.Version)
	for i, n := range l.Nodes {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s|%s|%d", n.Host, n.IP, n.Port)
	}
	b.WriteByte('\n')
	return b.String()
}

// ParseList is the inverse of String.
func ParseList(text string) (*List, error) {
	if len(text) > MaxList {
		return nil, fmt.Errorf("a list of %d bytes, where %d are the most", len(text), MaxList)
	}
	version, rest, _ := strings.Cut(text, "\n")
	nodes, end, ended := strings.Cut(rest, "\n")
	if !ended || end != "" {
		return nil, errors.New("a list that has not two lines")
	}
	l := &List{}
	var err error
	if l.Version, err = strconv.ParseInt(version, 10, 64); err != nil || l.Version < 1 {
		return nil, fmt.Errorf("a list whose version is %.40q", version)
	}
	words := strings.Fields(nodes)
	if len(words) == 0 || len(words) > maxNodes {
		return nil, fmt.Errorf("a list of %d servers", len(words))
	}
	for _, w := range words {
		n, err := parseNode(w)
		if err != nil {
			return nil, err
		}
		l.Nodes = append(l.Nodes, n)
	}
	return l, nil
}

func parseNode(word string) (Node, error) {
	parts := strings.Split(word, "|")
	if len(parts) != 3 || parts[0] == "" {
		return Node{}, fmt.Errorf("a list with the server %.80q, which is not host|ip|port", word)
	}
	port, err := strconv.ParseUint(parts[2], 10, 16)
	if _, ipErr := netip.ParseAddr(parts[1]); err != nil || port == 0 || ipErr != nil {
		return Node{}, fmt.Errorf("a list with the server %.80q, which is not host|ip|port", word)
	}
	return Node{parts[0], parts[1], int32(port)}, nil
}
