package routing

import (
	"crypto/sha1"
	"encoding/binary"
	"hash/crc32"
	"strconv"
)

// dalli is Dalli, Ruby's client: 160 points a server, the first four bytes of SHA1("host:port:i") as a
// big-endian number. A key hashes, with its namespace, to its CRC-32, and belongs to the last point at or
// before that hash.
//
// Source: Dalli's ring.rb and key_manager.rb.
func init() {
	register("dalli", func(servers []Server) (Owner, error) {
		const pointsPerServer = 160
		points := make([]point, 0, len(servers)*pointsPerServer)
		for i, s := range servers {
			name := hostPortName(s) + ":"
			for k := range pointsPerServer {
				sum := sha1.Sum(strconv.AppendInt([]byte(name), int64(k), 10))
				points = append(points, point{binary.BigEndian.Uint32(sum[:]), uint32(i)})
			}
		}
		return dalliRing{newRing(points)}, nil
	})
}

type dalliRing struct{ ring }

func (r dalliRing) Owner(key []byte) int {
	i := len(r.ring)
	// The last point at or before a hash precedes the first one after it.
	if hash := crc32.ChecksumIEEE(key); hash != 1<<32-1 {
		i = r.search(hash + 1)
	}
	if i == 0 {
		i = len(r.ring)
	}
	return int(r.ring[i-1].server)
}
