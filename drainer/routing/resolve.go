package routing

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// addressed has, for each client that hashes IP addresses, how it writes a server's name.
var addressed = map[string]func(s Server, ip string) string{}

func nameByAddress(client string, name func(s Server, ip string) string) { addressed[client] = name }

// HashesAddresses tells whether the client's name for a server has its IP address in it.
func HashesAddresses(client string) bool {
	_, ok := addressed[client]
	return ok
}

// Lookup returns the addresses of a host, as net.Resolver.LookupNetIP does.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// Resolve names the servers as a client that hashes their addresses does: Java's InetSocketAddress uses the first
// IPv4 address. Resolve returns the lists of all other clients unchanged.
func Resolve(ctx context.Context, client string, servers []Server, lookup Lookup) ([]Server, error) {
	name, ok := addressed[client]
	if !ok {
		return servers, nil
	}
	servers = slices.Clone(servers)
	for i, s := range servers {
		addresses, err := lookup(ctx, s.Host)
		if err != nil {
			return nil, fmt.Errorf("client %q hashes the servers' addresses: look up %s: %w", client, s.Host, err)
		}
		at := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Unmap().Is4() })
		if at < 0 {
			return nil, fmt.Errorf("client %q hashes the servers' addresses: %s has no IPv4 address", client, s.Host)
		}
		servers[i].Name = name(s, addresses[at].Unmap().String())
	}
	return servers, nil
}
