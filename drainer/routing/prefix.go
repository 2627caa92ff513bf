package routing

import (
	"bytes"
	"fmt"
	"slices"
)

// prefixless are the clients that hash a key without the prefix that they write before it (libmemcached's
// MEMCACHED_CALLBACK_PREFIX_KEY, php's OPT_PREFIX_KEY, pymemcache's key_prefix). All others hash the key that
// they send.
var prefixless []string

func hashWithoutPrefix(clients ...string) { prefixless = append(prefixless, clients...) }

// WithoutPrefix returns the owner function of a client that writes prefix before its keys and hashes them without
// it. A key that doesn't start with prefix is another application's and hashed whole. WithoutPrefix returns an
// error for a client that hashes keys with their prefix, because there is nothing to set.
func WithoutPrefix(client string, o Owner, prefix string) (Owner, error) {
	switch {
	case prefix == "":
		return o, nil
	case !slices.Contains(prefixless, client):
		return nil, fmt.Errorf("client %q hashes keys with their prefix: leave the prefix out", client)
	}
	return prefixed{o, []byte(prefix)}, nil
}

type prefixed struct {
	owner  Owner
	prefix []byte
}

func (p prefixed) Owner(key []byte) int { return p.owner.Owner(bytes.TrimPrefix(key, p.prefix)) }
