//go:build linux

package member_test

import (
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
)

// A supervisor starts no memcached that is too old to be a member, reports why, and leaves the volume
// unchanged: with a newer memcached the member starts warm.
func TestAMemcachedThatIsTooOldDoesNotStart(t *testing.T) {
	t.Parallel()
	old := memcachedtest.Suite(t, "bullseye")
	dir, all := t.TempDir(), drainertest.Objects(36, 100)
	s := drainertest.Serve(t, dir, "-m", "64")
	drainertest.Store(t, s.Address(), all)
	s.End("saved")

	command := drainertest.MemberArgs(contract.Connection{}, dir, memcachedtest.FreePort(t), "-m", "64")
	command.Command[0] = old
	p := drainertest.Start(t, command.Args()...)
	if code := p.Wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, p.Err.String())
	}
	expectRefusal(t, drainertest.TerminationLog(dir), contract.ReasonVersionTooOld, "1.6.9, and "+contract.OldestMemcached)

	s = drainertest.Serve(t, dir, "-m", "64")
	s.ExpectItems(all)
	s.Signal(syscall.SIGTERM)
}
