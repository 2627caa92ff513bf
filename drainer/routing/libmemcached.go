package routing

import "strconv"

// libmemcached is libmemcached with its defaults: Jenkins's one-at-a-time hash of the key, modulo the number
// of servers, in list order. pylibmc and php-memcached without options are the same.
//
// libmemcached-ketama is its consistent distribution (MEMCACHED_BEHAVIOR_KETAMA): a hundred points a server,
// "host-i", or "host:port-i" if the port isn't memcached's. Points and keys have the same hash.
//
// Source: libmemcached's hosts.cc (update_continuum), hash.cc (dispatch_host) and libhashkit's
// one_at_a_time.cc.
func init() {
	register("libmemcached", func(servers []Server) (Owner, error) {
		return oneAtATimeModulo(len(servers)), nil
	})
	register("libmemcached-ketama", func(servers []Server) (Owner, error) {
		const pointsPerServer = 100
		points := make([]point, 0, len(servers)*pointsPerServer)
		for i, s := range servers {
			name := libmemcachedName(s) + "-"
			for k := range pointsPerServer {
				points = append(points, point{oneAtATime(strconv.AppendInt([]byte(name), int64(k), 10)), uint32(i)})
			}
		}
		return oneAtATimeRing{newRing(points)}, nil
	})
	hashWithoutPrefix("libmemcached", "libmemcached-ketama", "libmemcached-ketama-weighted")
}

// libmemcachedName returns the server's name in the points of libmemcached's ring.
func libmemcachedName(s Server) string {
	host, port := s.clientHostPort()
	if port == DefaultPort {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// oneAtATime reads each byte as a signed char, as libmemcached does where C's char is signed (x86). Keys of
// ASCII characters have the same hash everywhere.
func oneAtATime(key []byte) uint32 {
	var h uint32
	for _, c := range key {
		h += uint32(int8(c))
		h += h << 10
		h ^= h >> 6
	}
	h += h << 3
	h ^= h >> 11
	h += h << 15
	return h
}

type oneAtATimeModulo uint32

func (n oneAtATimeModulo) Owner(key []byte) int { return int(oneAtATime(key) % uint32(n)) }

type oneAtATimeRing struct{ ring }

func (r oneAtATimeRing) Owner(key []byte) int { return r.find(oneAtATime(key)) }
