// Command thanos is Thanos' memcached client with auto_discovery. Each second it asks the address that is its
// argument.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/thanos-io/thanos/pkg/cacheutil"

	kitlog "github.com/go-kit/log"

	"example.com/memcached-operator/test/clients/pipe"
)

type library struct{ cacheutil.RemoteCacheClient }

func (l library) Get(key string) ([]byte, error) {
	return l.GetMulti(context.Background(), []string{key})[key], nil
}

func (l library) Set(key string, value []byte) error {
	return l.SetAsync(key, value, time.Hour)
}

func main() {
	config := "{auto_discovery: true, dns_provider_update_interval: 1s, timeout: 1m, addresses: [" + os.Args[1] + "]}"
	client, err := cacheutil.NewMemcachedClient(kitlog.NewLogfmtLogger(os.Stderr), "test", []byte(config), nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(pipe.Answer(library{client}))
}
