package move

import (
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// Nothing is moved to a member that is too old, nor from one: items could not be deleted there.
func TestNothingIsMovedWhereAMemberIsTooOld(t *testing.T) {
	t.Parallel()
	old := memcachedtest.StartSuite(t, "bullseye")
	_, young := drainertest.Survivors(t, 1)
	both := []string{old.Address(), young[0]}
	all := drainertest.Objects(36, 100)
	drainertest.Store(t, young[0], all)
	for source, reason := range map[string]string{old.Address(): "SourceProtocol", young[0]: "SurvivorProtocol"} {
		for _, leases := range []bool{false, true} {
			args := drainertest.MoveArgs(t, "gomemcache", source, both)
			args.Leases = leases
			r := drainertest.Move(t, args)
			if r.Code == 0 || r.Receipt.Reason != reason || r.Receipt.Added != 0 {
				t.Errorf("from %s, with leases %v: exit code %d, %+v", source, leases, r.Code, r.Receipt)
			}
			r.OneLine(t, contract.OldestMemcached)
		}
	}
	if n := old.Items(t); n != 0 {
		t.Errorf("%d items were copied to it", n)
	}
}
