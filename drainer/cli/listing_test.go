package cli_test

import (
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
)

// A member that refuses to list its items answers. So the mover ends at once, with a final reason, and the
// receipt says what to change.
func TestAMemberThatRefusesToListItsItemsIsToldForGood(t *testing.T) {
	for name, arguments := range map[string][]string{"-X": {"-X"}, "no_lru_crawler": {"-o", "no_lru_crawler"}} {
		for _, leaves := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", it leaves", false: ", it stays"}[leaves], func(t *testing.T) {
				if name != "-X" || leaves {
					tier.Second(t, "TestAMemberThatRefusesToListItsItemsIsToldForGood/-X,_it_stays")
				}
				t.Parallel()
				source := memcachedtest.Start(t, arguments...)
				_, servers := drainertest.Survivors(t, 1)
				if !leaves {
					servers = append(servers, source.Address())
				}
				drainertest.Store(t, source.Address(), drainertest.Objects(40, 20))
				r := drainertest.Move(t, drainertest.MoveArgs(t, "gomemcache", source.Address(), servers))
				if r.Code != contract.ExitUsage || r.Receipt.Reason != "ListingRefused" || !strings.Contains(r.Receipt.Message, "-X") {
					t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
				}
			})
		}
	}
}
