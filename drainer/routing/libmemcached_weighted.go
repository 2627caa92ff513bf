package routing

import "math"

// libmemcached-ketama-weighted is libmemcached with
// MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED: pylibmc's "ketama_weighted", php's
// OPT_LIBKETAMA_COMPATIBLE. Weights are all 1.
//
// Source: libmemcached's hosts.cc (update_continuum, ketama_server_hash) and
// hash.cc (dispatch_host); its MD5 hash is the digest's first four bytes, as a
// little-endian number.
func init() {
	register("libmemcached-ketama-weighted", func(servers []Server) (Owner, error) {
		return md5Ring{newRing(md5Points(servers, weightedDigests(len(servers)), libmemcachedName))}, nil
	})
}

// weightedDigests is the number of MD5 digests, of four points each, that libmemcached gives to each of n
// servers of equal weight: 40, but 39 for some n, because it computes in float32. The steps and their types
// are the source's. To round any of them elsewhere gives another ring.
func weightedDigests(n int) int {
	const pointsPerServer = 160
	share := float32(1) / float32(n)
	digests := float32(float32(float32(share*pointsPerServer)/4)*float32(n)) + float32(0.0000000001)
	return int(math.Floor(float64(digests)))
}
