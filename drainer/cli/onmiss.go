package cli

import (
	"context"
	"errors"
	"flag"
	"time"

	"example.com/memcached-operator/drainer/commandline"
	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/memcache"
	"example.com/memcached-operator/drainer/router/fence"
	"example.com/memcached-operator/drainer/router/onmiss"
)

// onMissFlags are the flags of "drainer route" about the cache that is asked for missed keys.
type onMissFlags struct {
	from              []string
	client, keyPrefix string
	connection        contract.Connection
	ttl, timeout      time.Duration
}

func (f *onMissFlags) add(fs *flag.FlagSet) {
	fs.Func(contract.FlagOnMiss, "another cache, which is only read: it is asked for keys that the members miss, and what it has is kept: "+contract.FromMemcached+"HOST:PORT[,HOST:PORT…] in its clients' order, or "+contract.FromDiscovery+"HOST:PORT; once or more often", func(from string) error {
		f.from = append(f.from, from)
		return nil
	})
	fs.StringVar(&f.client, contract.FlagOnMissClient, "", "the client library of that cache's applications, as --"+contract.FlagClient)
	fs.StringVar(&f.keyPrefix, contract.FlagOnMissKeyPrefix, "", "what that client writes before its keys and doesn't hash")
	fs.StringVar(&f.connection.TLSDir, contract.FlagOnMissTLSDir, "", "as --"+contract.FlagTLSDir+", for that cache")
	fs.StringVar(&f.connection.AuthFile, contract.FlagOnMissAuthFile, "", "as --"+contract.FlagAuthFile+", for that cache")
	fs.DurationVar(&f.ttl, contract.FlagOnMissTTL, onmiss.DefaultTTL, "how long an item lives that comes from a memcached before 1.6, which can't tell: whole seconds; below 0 for ever")
	fs.DurationVar(&f.timeout, contract.FlagOnMissTimeout, onmiss.DefaultTimeout, "how long that cache may take for a key; after that the key is a miss, and the server that was asked is left alone for a while")
}

// config returns nil if there is no such cache.
func (f *onMissFlags) config() (*onmiss.Config, error) {
	if len(f.from) == 0 {
		return nil, nil
	}
	switch {
	case f.timeout <= 0:
		return nil, commandline.Usagef("--%s: a limit is needed", contract.FlagOnMissTimeout)
	case f.ttl >= 0 && f.ttl < time.Second:
		return nil, commandline.Usagef("--%s: at least 1s is needed", contract.FlagOnMissTTL)
	}
	d := memcache.Dialer{Connection: f.connection, AnyServer: true}
	if err := d.CheckFiles(); err != nil {
		return nil, err
	}
	// Wrong flags end the router at once; an endpoint that doesn't answer doesn't.
	_, err := f.ring(context.Background(), memcache.Dialer{}, 0)
	if errors.As(err, new(*commandline.UsageError)) {
		return nil, err
	}
	const patience = 10 * time.Second
	find := func(ctx context.Context) (fence.Ring, error) { return f.ring(ctx, d, patience) }
	return &onmiss.Config{Find: find, Dialer: d, Timeout: f.timeout, TTL: f.ttl}, nil
}

// ring returns the other cache's ring. With no patience, ring only looks at the flags.
func (f *onMissFlags) ring(ctx context.Context, d memcache.Dialer, patience time.Duration) (r fence.Ring, err error) {
	servers, dirs, err := sources(ctx, f.from, d, patience)
	if err == nil && len(dirs) > 0 {
		err = commandline.Usagef("--%s takes no %s", contract.FlagOnMiss, contract.FromVolumes)
	}
	if err != nil {
		return r, err
	}
	routed := routingFlags{client: f.client, keyPrefix: f.keyPrefix, servers: servers}
	if patience > 0 {
		if err := routed.resolve(ctx, patience); err != nil {
			return r, err
		}
	}
	r.Owner, err = routed.owner()
	r.Servers = routed.servers
	return r, err
}
