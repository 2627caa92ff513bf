package routing

// evcache is Netflix's EVCache: spymemcached's ring of 160 points a server, each server being called
// "host/ip:11211", whatever its port.
//
// Source: EVCache's EVCacheKetamaNodeLocatorConfiguration and
// EVCacheNodeLocator.
func init() {
	register("evcache", func(servers []Server) (Owner, error) {
		return md5Ring{newMapRing(md5Points(servers, spymemcachedDigests, evcacheName))}, nil
	})
	nameByAddress("evcache", func(s Server, ip string) string {
		host, _ := s.clientHostPort()
		return host + "/" + ip
	})
}

func evcacheName(s Server) string {
	host, _ := s.clientHostPort()
	return host + ":11211"
}
