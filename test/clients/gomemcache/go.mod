module example.com/memcached-operator/test/clients/gomemcache

go 1.26.0

require (
	example.com/memcached-operator/test/clients/pipe v0.0.0
	github.com/bradfitz/gomemcache v0.0.0
)

replace example.com/memcached-operator/test/clients/pipe => ../pipe

// Google's fork has no tag, and the name of what it was forked from. The Go proxy doesn't
// have it, so a copy lies here, as it is at
// https://github.com/google/gomemcache/tree/94281991662a338193ce55772ece243d56f89a46
replace github.com/bradfitz/gomemcache => ./google-gomemcache
