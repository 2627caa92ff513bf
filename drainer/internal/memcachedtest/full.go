package memcachedtest

import (
	"bytes"
	"fmt"
	"testing"

	"example.com/memcached-operator/drainer/memcache"
)

// FullArgs are arguments of a server that Fill fills.
var FullArgs = []string{"-M", "-m", "2", "-o", "no_lru_maintainer"}

// Fill stores items until the server, which was started with FullArgs, has no memory for an item of any size.
func (s *Server) Fill(tb testing.TB) {
	tb.Helper()
	c := s.DialFor(tb)
	for size := 512 << 10; size > 0; size /= 2 { // all slab classes
		for i, full := 0, false; !full; i++ {
			var sets bytes.Buffer
			n := 1 + 4096/size
			for j := range n {
				fmt.Fprintf(&sets, "set fill-%d-%d-%d 0 0 %d\r\n%s\r\n", size, i, j, size, bytes.Repeat([]byte("x"), size))
			}
			if err := c.Send(sets.Bytes()); err != nil {
				tb.Fatal(err)
			}
			for range n {
				full = !stored(tb, c) || full
			}
		}
	}
}

func stored(tb testing.TB, c *memcache.Conn) bool {
	line, err := c.Line()
	if err != nil {
		tb.Fatal(err)
	}
	return string(line) == "STORED"
}
