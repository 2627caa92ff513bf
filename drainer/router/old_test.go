package router_test

import (
	"fmt"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/router"
	"example.com/memcached-operator/test/tier"
)

// ownKey returns a key of the ring's i-th member.
func ownKey(r router.Ring, i int) string {
	for n := 0; ; n++ {
		if key := fmt.Sprintf("own-%d", n); r.Owner.Owner([]byte(key)) == i {
			return key
		}
	}
}

// A member that is too old gets no client's request: it would carry out values as commands.
func TestAMemberThatIsTooOldIsNeverSentARequest(t *testing.T) {
	t.Parallel()
	all := append(members(t, 1), memcachedtest.StartSuite(t, "bullseye"))
	young, old := all[0], all[1]
	if got := dial(t, old.Address()).ask("set kept 0 0 1\r\nx\r\n"); got != "STORED\r\n" {
		t.Fatal(got)
	}
	r := start(t, router.Config{}, all...)
	routed := dial(t, r.address)
	said := routed.ask("ms " + ownKey(ring(t, all...), 1) + " 9\r\nflush_all\r\n")
	if !strings.Contains(said, "SERVER_ERROR") || !strings.Contains(said, old.Address()) {
		t.Errorf("a set is answered %q", said)
	}
	if got := dial(t, old.Address()).ask("get kept\r\n"); !strings.HasPrefix(got, "VALUE kept") {
		t.Errorf("the member has lost what it held: %q", got)
	}
	routed.want("set "+ownKey(ring(t, young, old), 0)+" 0 0 1\r\ny\r\n", "STORED\r\n")
}

// Members that are new enough are served, with the versions of all suites in one ring.
func TestMembersOfOtherVersionsShareARing(t *testing.T) {
	tier.Second(t, "TestAMemberThatIsTooOldIsNeverSentARequest")
	t.Parallel()
	all := append(members(t, 1), memcachedtest.StartSuite(t, "trixie"))
	r := start(t, router.Config{}, all...)
	routed := dial(t, r.address)
	for i := range all {
		key := ownKey(ring(t, all...), i)
		routed.want("ms "+key+" 9\r\nflush_all\r\n", "HD\r\n")
		routed.want("mg "+key+" v\r\n", "VA 9\r\nflush_all\r\n")
	}
}
