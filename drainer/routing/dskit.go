package routing

import (
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/facette/natsort"
)

// dskit is Grafana's dskit, the client in Loki, Mimir and Tempo. dskit sorts the servers naturally by
// "host:port", and applies jump hash to the key's XXH64, with the library that is used here too.
//
// Source: dskit's cache/memcached_server_selector.go and jump_hash.go.
func init() {
	register("dskit", func(servers []Server) (Owner, error) {
		index := make(map[string]int, len(servers))
		names := make([]string, len(servers))
		for i, s := range servers {
			names[i] = hostPortName(s)
			if _, ok := index[names[i]]; ok {
				return nil, fmt.Errorf("two servers are called %s", names[i])
			}
			index[names[i]] = i
		}
		natsort.Sort(names)
		order := make(dskitJump, len(names))
		for i, name := range names {
			order[i] = index[name]
		}
		return order, nil
	})
}

// dskitJump holds the index in the list of each server in natural order.
type dskitJump []int

func (order dskitJump) Owner(key []byte) int { return order[jump(xxhash.Sum64(key), len(order))] }
