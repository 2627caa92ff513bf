package routing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
)

// prefixedKeys are the clients that can write a prefix before each key, and the resulting text.
var prefixedKeys = map[string]struct {
	library library
	set     string // the application's setting
	written string // what memcached gets before the key
}{
	"libmemcached":                 {pythonLibraries, "shop:", "shop:"},
	"libmemcached-ketama":          {pythonLibraries, "shop:", "shop:"},
	"libmemcached-ketama-weighted": {pythonLibraries, "shop:", "shop:"},
	"pymemcache":                   {pythonLibraries, "shop:", "shop:"},
	"pymemcache-bytes":             {pythonLibraries, "shop:", "shop:"},
	"python-memcached":             {pythonLibraries, "shop:", "shop:"},
	"dalli":                        {rubyLibraries, "shop", "shop:"},
}

// The real clients, with a prefix, store keys in running servers. For the clients that hash keys without it,
// each key is where WithoutPrefix says; for the others, where New alone says.
func TestPrefixesLandWhereTheClientsStore(t *testing.T) {
	keys := 100
	if tier.All() {
		keys = 300
	}
	var servers []Server
	var conns []*memcachedtest.Raw
	for range 5 {
		s := memcachedtest.Start(t)
		servers = append(servers, Server{Host: "127.0.0.1", Port: uint16(s.Port)})
		conns = append(conns, s.Raw())
	}
	for client, p := range prefixedKeys {
		t.Run(client, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			twice := map[string]bool{} // a short key may occur twice
			some := slices.DeleteFunc(randomKeys(rand.New(rand.NewPCG(seed, 0)), keys, "utf8", 100), func(k []byte) bool {
				again := twice[string(k)]
				twice[string(k)] = true
				return again || len(p.written)+len(k) > maxKey
			})
			p.library.run(t, input(client, []question{{servers, 0, len(some)}}, some), "store", p.set)

			owner, err := New(client, servers)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(prefixless, client) {
				if owner, err = WithoutPrefix(client, owner, p.written); err != nil {
					t.Fatal(err)
				}
			}
			astray := 0
			for _, k := range some {
				k = append([]byte(p.written), k...)
				if conns[owner.Owner(k)].Do("md "+string(k), nil) != "HD" { // so that the next client finds none of them
					astray++
				}
			}
			if astray > 0 {
				t.Errorf("%d of %d keys are elsewhere", astray, len(some))
			}
		})
	}
}
