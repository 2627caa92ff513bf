package routing

import (
	"net"
	"strconv"
)

// spymemcached is spymemcached's default (ArrayModNodeLocator, NATIVE_HASH):
// String.hashCode of the key, as an unsigned number, modulo the number of
// servers, in list order.
//
// spymemcached-ketama is its KetamaConnectionFactory: 160 points a server. The server's name is
// InetSocketAddress.toString(): "host/ip:port", or "ip:port" if the list has an address.
//
// spymemcached-ketama-names is KetamaNodeLocator with
// KetamaNodeKeyFormatter.Format.LIBMEMCACHED: the same ring with libmemcached's
// names, which outlive a member's address.
//
// Source: spymemcached's ArrayModNodeLocator, KetamaNodeLocator,
// KetamaNodeKeyFormatter and DefaultHashAlgorithm.
func init() {
	register("spymemcached", func(servers []Server) (Owner, error) {
		return hashCodeModulo(len(servers)), nil
	})
	register("spymemcached-ketama", func(servers []Server) (Owner, error) {
		return md5Ring{newMapRing(md5Points(servers, spymemcachedDigests, hostPortName))}, nil
	})
	register("spymemcached-ketama-names", func(servers []Server) (Owner, error) {
		return md5Ring{newMapRing(md5Points(servers, spymemcachedDigests, libmemcachedName))}, nil
	})
	nameByAddress("spymemcached-ketama", func(s Server, ip string) string {
		host, port := s.clientHostPort()
		if host != ip {
			host += "/" + ip
		}
		return net.JoinHostPort(host, strconv.Itoa(int(port)))
	})
}

// spymemcachedDigests is the number of digests, of four points each, of a server.
const spymemcachedDigests = 40

type hashCodeModulo uint32

func (n hashCodeModulo) Owner(key []byte) int { return int(hashCode(key) % uint32(n)) }
