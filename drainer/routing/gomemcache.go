package routing

import "hash/crc32"

// gomemcache is github.com/bradfitz/gomemcache: CRC-32 (IEEE) of the key
// modulo the number of servers, in list order.
//
// Source: gomemcache's memcache/selector.go, ServerList.PickServer.
func init() {
	register("gomemcache", func(servers []Server) (Owner, error) {
		return crc32Modulo(len(servers)), nil
	})
}

type crc32Modulo uint32

func (n crc32Modulo) Owner(key []byte) int {
	return int(crc32.ChecksumIEEE(key) % uint32(n))
}
