package router_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/ringchange"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/drainer/routing"
	"example.com/memcached-operator/test/wait"
)

// between returns a ring of one member, and calls before before the member is sent something.
func between(t *testing.T, s *memcachedtest.Server, before func(sent []byte)) router.Ring {
	t.Helper()
	server, err := routing.ParseServer(memcachedtest.Between(t, s.Address(), func(sent []byte) bool { before(sent); return true }))
	if err != nil {
		t.Fatal(err)
	}
	r := router.Ring{Servers: []routing.Server{server}}
	if r.Owner, err = routing.New("gomemcache", r.Servers); err != nil {
		t.Fatal(err)
	}
	return r
}

// A key that is moved during a flush_all of all members is flushed: an item that its mover has read before
// doesn't reappear once the client has its answer.
func TestAFlushIsObeyedInAChange(t *testing.T) {
	t.Parallel()
	for state := ringchange.Settle; state <= ringchange.Finish; state++ {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			all := members(t, 2)
			old, owner := all[0].Raw(), all[1].Raw()
			old.Must("STORED", "set key 0 0 3", []byte("old"))
			var flushes atomic.Int64
			var once sync.Once
			cas := ""
			isFlush := func(sent []byte) bool { return bytes.Contains(sent, []byte("flush_all")) }
			rings := []router.Ring{
				between(t, all[0], func(sent []byte) {
					if isFlush(sent) {
						once.Do(func() { // the mover begins after the new owner was flushed
							wait.For(t, "the new owner to be flushed", func() error {
								stats, err := all[1].Dial().Stats("")
								if err == nil && stats["cmd_flush"] == "0" {
									err = errors.New("it is not yet")
								}
								return err
							})
							lease := owner.Do("ms key 20 ME c T6", []byte(ringchange.LeaseValue))
							_, cas, _ = strings.Cut(lease, " c")
							old.Must("HD", "mg key", nil)
						})
					}
				}),
				between(t, all[1], func(sent []byte) {
					if isFlush(sent) {
						flushes.Add(1)
					}
				}),
			}
			r := start(t, router.Config{}, all[0])
			enter(t, r, &router.Table{Number: 1, State: state, Old: rings[0], New: rings[1]})
			c := dial(t, r.address)
			c.want("flush_all\r\n", "OK\r\n")
			if got := owner.Do("ms key 3 C"+cas, []byte("old")); cas == "" || got != "NF" {
				t.Errorf("the mover's copy, in place of its lease %q: %q", cas, got)
			}
			c.want("get key\r\n", "END\r\n")
			if n := flushes.Load(); n != 2 {
				t.Errorf("the new owner was flushed %d times", n)
			}
			// Items that come after the flush on the same connection stay.
			c.want("flush_all\r\nset key 0 0 1\r\nv\r\nget key\r\n", "OK\r\nSTORED\r\nVALUE key 0 1\r\nv\r\nEND\r\n")
			c.want("get key\r\n", "VALUE key 0 1\r\nv\r\nEND\r\n")
			c.want("flush_all noreply\r\nset key 0 0 1\r\nw\r\n", "STORED\r\n")
			c.want("get key\r\n", "VALUE key 0 1\r\nw\r\nEND\r\n")
			all[1].Kill()
			if got := c.ask("flush_all\r\n"); !strings.HasPrefix(got, "SERVER_ERROR ") {
				t.Errorf("a flush_all that a member has not got: %q", got)
			}
		})
	}
}
