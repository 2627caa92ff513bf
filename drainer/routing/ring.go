package routing

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"slices"
	"strconv"
)

// point is one position of a server on a ring of 32-bit hashes.
type point struct {
	hash   uint32
	server uint32
}

// ring finds the first point at or after a hash; after the last point comes the first. All ketama clients use
// this lookup.
type ring []point

// newRing sorts the points by hash. If two servers have the same point, the earlier one
// in the list wins.
func newRing(points []point) ring {
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.server, b.server))
	})
	return points
}

// newMapRing is newRing for clients that keep their points in a map: if two servers
// have the same point, the later one in the list wins.
func newMapRing(points []point) ring {
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(b.server, a.server))
	})
	return points
}

func (r ring) find(hash uint32) int {
	i := r.search(hash)
	if i == len(r) {
		i = 0
	}
	return int(r[i].server)
}

// search returns the index of the first point at or after hash, len(r) if there is
// none.
func (r ring) search(hash uint32) int {
	low, high := 0, len(r)
	for low < high {
		if middle := int(uint(low+high) >> 1); r[middle].hash < hash {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// md5Points returns the points of the original ketama: for each server so many digests of "name-i", each cut
// into four little-endian numbers.
func md5Points(servers []Server, digests int, name func(Server) string) []point {
	points := make([]point, 0, len(servers)*digests*4)
	for i, s := range servers {
		prefix := name(s) + "-"
		for k := range digests {
			sum := md5.Sum(strconv.AppendInt([]byte(prefix), int64(k), 10))
			for x := 0; x < len(sum); x += 4 {
				points = append(points, point{binary.LittleEndian.Uint32(sum[x:]), uint32(i)})
			}
		}
	}
	return points
}

// md5Ring looks up the first four bytes of a key's MD5.
type md5Ring struct{ ring }

func (r md5Ring) Owner(key []byte) int {
	sum := md5.Sum(key)
	return r.find(binary.LittleEndian.Uint32(sum[:]))
}
