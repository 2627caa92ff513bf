// Command dskit is the memcached client of Loki, Mimir and Tempo. Each second it looks up the name that is its
// argument.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	"github.com/go-kit/log/level"

	kitlog "github.com/go-kit/log"
	"github.com/grafana/dskit/cache"

	"example.com/memcached-operator/test/clients/pipe"
)

type library struct{ *cache.MemcachedClient }

func (l library) Get(key string) ([]byte, error) {
	found, err := l.GetMultiWithError(context.Background(), []string{key})
	return found[key], err
}

func (l library) Set(key string, value []byte) error {
	return l.MemcachedClient.Set(context.Background(), key, value, time.Hour)
}

func main() {
	var config cache.MemcachedClientConfig
	config.RegisterFlagsWithPrefix("", flag.CommandLine)
	flag.Parse()
	config.Addresses = flag.Args()
	config.AddressesLookupPeriod = time.Second
	config.Timeout, config.ConnectTimeout = time.Minute, 5*time.Second
	logger := level.NewFilter(kitlog.NewLogfmtLogger(os.Stderr), level.AllowWarn())
	client, err := cache.NewMemcachedClientWithConfig(logger, "test", config, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(pipe.Answer(library{client}))
}
