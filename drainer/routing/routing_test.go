package routing

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func twoServers() []Server {
	return []Server{{Host: "a", Port: DefaultPort}, {Host: "b", Port: DefaultPort}}
}

// The error names the cause; nothing is guessed.
func TestServersThatCannotBeRoutedToAreAnError(t *testing.T) {
	tests := map[string]struct {
		client  string
		servers []Server
		want    string
	}{
		"unknown client lists the known": {"nope", twoServers(), "known are " + strings.Join(Clients(), ", ")},
		"no servers":                     {"gomemcache", nil, "no server"},
		"a server twice":                 {"gomemcache", append(twoServers(), twoServers()...), "twice"},
		"no host":                        {"gomemcache", []Server{{Port: 1}}, "no host"},
		"no port":                        {"gomemcache", []Server{{Host: "a"}}, "no port"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(test.client, test.servers); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New(%q) = %v, want an error with %q", test.client, err, test.want)
			}
		})
	}
}

func TestServersAreParsedOrRefused(t *testing.T) {
	tests := map[string]struct {
		in   string
		want Server
		ok   bool
	}{
		"address":          {"cache-0.cache:11211", Server{Host: "cache-0.cache", Port: 11211}, true},
		"name":             {"one=10.0.0.1:1", Server{Name: "one", Host: "10.0.0.1", Port: 1}, true},
		"name with a port": {"one:11212=10.0.0.1:1", Server{Name: "one:11212", Host: "10.0.0.1", Port: 1}, true},
		"IPv6":             {"[::1]:65535", Server{Host: "::1", Port: 65535}, true},
		"no port":          {"cache-0", Server{}, false},
		"port 0":           {"cache-0:0", Server{}, false},
		"port too large":   {"cache-0:65536", Server{}, false},
		"no host":          {":11211", Server{}, false},
		"empty name":       {"=a:1", Server{}, false},
		"space in a name":  {"a b=a:1", Server{}, false},
		"empty":            {"", Server{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseServer(test.in)
			if got != test.want || (err == nil) != test.ok {
				t.Errorf("ParseServer(%q) = %+v, %v", test.in, got, err)
			}
		})
	}
}

// Dialling another address than the client's doesn't change where items go.
func TestNameIsWhatTheClientHashes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	keys := randomKeys(r, 1000, "any", maxKey)
	for _, client := range Clients() {
		own, _ := New(client, []Server{{Host: "a", Port: 11211}, {Host: "b", Port: 11212}, {Host: "c", Port: 11213}})
		named, err := New(client, []Server{{Name: "a:11211", Host: "10.0.0.1", Port: 1},
			{Name: "b:11212", Host: "10.0.0.2", Port: 2}, {Name: "c:11213", Host: "10.0.0.3", Port: 3}})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if a, b := own.Owner(k), named.Owner(k); a != b {
				t.Fatalf("%s: key %q has owner %d by address, %d by name", client, k, a, b)
			}
		}
	}
}

// For the other clients, a name without a port is a host, whose port is the dialled one.
func TestAliasesAreNamesToTwemproxyOnly(t *testing.T) {
	alias := Server{Name: "b", Host: "10.0.0.2", Port: 11212}
	if got := libmemcachedName(alias); got != "b:11212" {
		t.Errorf("libmemcached calls it %q", got)
	}
	if got := twemproxyName(alias); got != "b" {
		t.Errorf("twemproxy calls it %q", got)
	}
	if got := twemproxyName(Server{Host: "b", Port: 11212}); got != "b:11212" {
		t.Errorf("twemproxy calls one without an alias %q", got)
	}
}

// Owner allocates nothing, and every server of the list gets keys.
func TestOwnerIsCheap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	keys := randomKeys(r, 10000, "any", maxKey)
	var servers []Server
	for i := range 7 {
		servers = append(servers, Server{Host: fmt.Sprintf("s%d", i), Port: DefaultPort})
	}
	for _, client := range Clients() {
		t.Run(client, func(t *testing.T) {
			owner, err := New(client, servers)
			if err != nil {
				t.Fatal(err)
			}
			shares := make([]int, len(servers))
			for _, k := range keys {
				shares[owner.Owner(k)]++
			}
			for i, n := range shares {
				if n < len(keys)/len(servers)/2 {
					t.Errorf("server %d owns %d of %d keys", i, n, len(keys))
				}
			}
			if n := testing.AllocsPerRun(100, func() { owner.Owner(keys[0]) }); n != 0 {
				t.Errorf("Owner allocates %v times", n)
			}
		})
	}
}

// The values are published by the authors of other implementations.
func TestJumpHashGivesThePublishedValues(t *testing.T) {
	tests := []struct {
		hash uint64
		n    int
		want int
	}{{1, 1, 0}, {42, 57, 43}, {0xDEAD10CC, 1, 0}, {0xDEAD10CC, 666, 361}, {256, 1024, 520}}
	for _, test := range tests {
		if got := jump(test.hash, test.n); got != test.want {
			t.Errorf("jump(%d, %d) = %d, want %d", test.hash, test.n, got, test.want)
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	servers := append(twoServers(), Server{Host: "c", Port: DefaultPort})
	for _, client := range Clients() {
		b.Run(client, func(b *testing.B) {
			owner, err := New(client, servers)
			if err != nil {
				b.Fatal(err)
			}
			key := []byte("user:123456789:profile")
			for b.Loop() {
				owner.Owner(key)
			}
		})
	}
}
