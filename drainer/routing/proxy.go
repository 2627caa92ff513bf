package routing

import "github.com/zeebo/xxh3"

// memcached-proxy is memcached's own proxy (and its routelib) with its
// defaults: XXH3 (64 bits, seed 0) of the key, and jump hash over the pool's
// backends in the order in which they are listed.
//
// Source: memcached's proxy_lua.c (a pool's default key_hasher and dist),
// proxy_xxhash.c and proxy_jump_hash.c.
func init() {
	register("memcached-proxy", func(servers []Server) (Owner, error) {
		return proxyJump(len(servers)), nil
	})
}

type proxyJump int

func (n proxyJump) Owner(key []byte) int { return jump(xxh3.Hash(key), int(n)) }
