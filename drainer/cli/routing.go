package cli

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/pace"
	"example.com/memcached-operator/drainer/routing"
)

// routingFlags say how clients find a key's server.
type routingFlags struct {
	client    string
	servers   serverList
	keyPrefix string
}

type serverList []routing.Server

func (l *serverList) String() string { return "" }

func (l *serverList) Set(s string) error {
	server, err := routing.ParseServer(s)
	if err == nil {
		*l = append(*l, server)
	}
	return err
}

func (f *routingFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&f.client, contract.FlagClient, "", "the client library that applications use: "+strings.Join(routing.Clients(), ", "))
	fs.Var(&f.servers, contract.FlagServer, "a server as [NAME=]HOST:PORT; once per server, in the client's order")
	fs.StringVar(&f.keyPrefix, contract.FlagKeyPrefix, "", "what the client writes before its keys and doesn't hash (libmemcached, pymemcache)")
}

// owner returns the owner function for the servers that the flags name.
func (f *routingFlags) owner() (routing.Owner, error) {
	if len(f.servers) == 0 {
		return nil, commandline.Usagef("--%s is needed, once per server", contract.FlagServer)
	}
	owner, err := routing.New(f.client, f.servers)
	if err == nil {
		owner, err = routing.WithoutPrefix(f.client, owner, f.keyPrefix)
	}
	if err != nil {
		return nil, &commandline.UsageError{Err: err}
	}
	return owner, nil
}

// resolve names the servers as a client that hashes their addresses does. resolve waits for names that don't
// exist yet, such as the name of a member that restarts.
func (f *routingFlags) resolve(ctx context.Context, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		servers, err := f.resolved(ctx, f.servers)
		if err == nil {
			f.servers = servers
			return nil
		}
		if time.Now().Add(pause).After(deadline) {
			return fmt.Errorf("%w: %w", memcache.ErrUnreachable, err)
		}
		if err := pace.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (f *routingFlags) resolved(ctx context.Context, servers []routing.Server) ([]routing.Server, error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return routing.Resolve(ctx, f.client, servers, func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	})
}
