// Command gomemcache is Google's gomemcache with its discovery client, which asks the
// address that is the argument every second.
package main

import (
	"errors"
	"log"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.com/memcached-operator/test/clients/pipe"
)

type library struct{ *memcache.Client }

func (l library) Get(key string) ([]byte, error) {
	item, err := l.Client.Get(key)
	if errors.Is(err, memcache.ErrCacheMiss) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

func (l library) Set(key string, value []byte) error {
	return l.Client.Set(&memcache.Item{Key: key, Value: value})
}

func main() {
	client, err := memcache.NewDiscoveryClient(os.Args[1], time.Second)
	if err != nil {
		log.Fatal(err)
	}
	client.Timeout = time.Minute
	log.Fatal(pipe.Answer(library{client}))
}
