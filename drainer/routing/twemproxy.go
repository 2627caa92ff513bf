package routing

const twemproxyClient = "twemproxy"

// twemproxy is twemproxy (nutcracker) with "distribution: ketama" and "hash: fnv1a_64", its defaults, and
// weights of 1. The ring is libmemcached's weighted one; a server's name is its alias if it has one.
//
// Source: twemproxy's nc_ketama.c, nc_fnv.c and nc_conf.c (conf_add_server).
func init() {
	register(twemproxyClient, func(servers []Server) (Owner, error) {
		return fnvRing{newRing(md5Points(servers, weightedDigests(len(servers)), twemproxyName))}, nil
	})
}

// twemproxyName returns the alias unchanged, or else libmemcached's name. A name that ends in a port is not
// an alias, but the address at which twemproxy finds the server.
func twemproxyName(s Server) string {
	if isAlias(s) {
		return s.Name
	}
	return libmemcachedName(s)
}

func isAlias(s Server) bool {
	host, _ := s.clientHostPort()
	return s.Name == host
}

// fnvRing looks up twemproxy's fnv1a_64.
type fnvRing struct{ ring }

func (r fnvRing) Owner(key []byte) int { return r.find(fnv1a64Truncated(key)) }

// fnv1a64Truncated is FNV-1a of 64 bits as twemproxy computes it: in 32 bits,
// over signed chars (as C has them on x86).
func fnv1a64Truncated(key []byte) uint32 {
	const offset, prime = 0xcbf29ce484222325 & 0xffffffff, 0x100000001b3 & 0xffffffff
	h := uint32(offset)
	for _, c := range key {
		h ^= uint32(int8(c))
		h *= prime
	}
	return h
}
