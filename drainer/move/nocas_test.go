package move

import (
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// At a memcached without CAS, a delete by CAS is unconditional.
func TestNothingIsMovedWithoutCAS(t *testing.T) {
	for what, args := range map[string][2][]string{
		"at the member":  {{"-C"}, nil},
		"at the owner":   {nil, {"-C"}},
		"at both places": {{"-C"}, {"-C"}},
	} {
		t.Run(what, func(t *testing.T) {
			member, owner := memcachedtest.Start(t, args[0]...), memcachedtest.Start(t, args[1]...)
			addresses := []string{member.Address(), owner.Address()}
			for i := range 20 {
				member.Raw().Must("STORED", fmt.Sprintf("set key%d 0 0 1", i), []byte("v"))
			}
			r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", addresses[0], addresses))
			if r.Code != contract.ExitUsage || r.Receipt.Reason != reasonNoCAS || !strings.Contains(r.Receipt.Message, "-C") || r.Receipt.Complete {
				t.Errorf("%d, %+v", r.Code, r.Receipt)
			}
			if n := member.Items(t); n != 20 || owner.Items(t) != 0 {
				t.Errorf("the member has %d items, the owner %d", n, owner.Items(t))
			}
		})
	}
}
