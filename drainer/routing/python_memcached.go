package routing

import "hash/crc32"

// python-memcached is python-memcached (import memcache) with its defaults and
// weights of 1: bits 16 to 30 of the key's CRC-32, but 1 for 0, modulo the
// number of servers, in list order. A key_prefix of its *_multi calls is hashed
// with the key.
//
// Source: python-memcached's memcache.py, cmemcache_hash and _get_server.
func init() {
	register("python-memcached", func(servers []Server) (Owner, error) {
		return crc15Modulo(len(servers)), nil
	})
}

type crc15Modulo uint32

func (n crc15Modulo) Owner(key []byte) int {
	return int(max(crc32.ChecksumIEEE(key)>>16&0x7fff, 1) % uint32(n))
}
