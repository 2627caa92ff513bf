// Package routing answers which server a memcached client asks for a key, for the client libraries in use. A
// client never finds an item on another server, so each algorithm follows the client's source exactly: the
// names it hashes, its rule for the port, the order, and how it breaks ties.
//
// Each client has a file, which registers it; nothing else knows its name.
package routing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefaultPort is memcached's port; several clients leave it out of server names.
const DefaultPort = 11211

// Server is one entry of a client's list of servers.
type Server struct {
	// Name is the client's name for the server: an alias, or another HOST or HOST:PORT. If it is empty, the
	// client uses Host and Port.
	Name string
	// Host and Port are where the server is dialled.
	Host string
	Port uint16
}

// Owner maps keys to servers. An Owner is safe for concurrent use. Its method neither allocates nor keeps the key.
type Owner interface {
	// Owner returns the index, in the list of servers, of the server that the client asks for key.
	Owner(key []byte) int
}

// eachServer has the clients that hash a key once for each server.
var eachServer []string

func hashEachServer(clients ...string) { eachServer = append(eachServer, clients...) }

// HashesEachServer tells whether the client's lookup hashes the key once for each server of the list. All
// others hash it once or a few times, however long the list is.
func HashesEachServer(client string) bool { return slices.Contains(eachServer, client) }

// constructor builds the owner function of one client. The list has at least two servers: with one server there is
// nothing to choose.
type constructor func(servers []Server) (Owner, error)

// clients is filled by the init functions of the clients' files.
var clients = map[string]constructor{}

func register(client string, c constructor) {
	if _, ok := clients[client]; ok {
		panic("routing: client " + client + " is registered twice")
	}
	clients[client] = c
}

// Clients returns the known names, sorted.
func Clients() []string {
	return slices.Sorted(maps.Keys(clients))
}

// New returns the owner function of the named client over servers, in the client's order. The error for an
// unknown client lists the known ones.
func New(client string, servers []Server) (Owner, error) {
	build, ok := clients[client]
	switch {
	case !ok:
		return nil, fmt.Errorf("client %q is not known; known are %s", client, strings.Join(Clients(), ", "))
	case len(servers) == 0:
		return nil, errors.New("no server to route to")
	}
	if err := checkUnique(servers); err != nil {
		return nil, err
	}
	if len(servers) == 1 {
		return only{}, nil
	}
	return build(servers)
}

// checkUnique refuses a list that names a server twice: a client would give
// that server a double share, or none, depending on its algorithm.
func checkUnique(servers []Server) error {
	seen := make(map[Server]bool, len(servers))
	for _, s := range servers {
		if s.Host == "" || s.Port == 0 {
			return fmt.Errorf("server %q has no host or no port", s.Name)
		}
		if seen[s] {
			return fmt.Errorf("server %s:%d is listed twice", s.Host, s.Port)
		}
		seen[s] = true
	}
	return nil
}

// only is the owner function of a single server, which owns every key.
type only struct{}

func (only) Owner([]byte) int { return 0 }
