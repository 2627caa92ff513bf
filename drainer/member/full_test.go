//go:build linux

package member_test

import (
	"strings"
	"syscall"
	"testing"

	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/warmfile"
	"example.com/memcached-operator/test/tier"
)

// Everything outdated was dropped before, and that was not enough.
func TestASaveThatFindsNoRoomAtAllSaysSo(t *testing.T) {
	tier.Second(t, "TestASaveThatFindsTheDiskFullDropsWhatIsOutdated")
	t.Parallel()
	p := newPod(t)
	s := p.start("", fewPages...)
	drainertest.Store(t, s.Address(), midsize('a', 80))
	s.End("saved")
	p = p.nextPod()
	s = p.start("")
	all := midsize('b', 80)
	drainertest.Store(t, s.Address(), all)
	fault{call: "fallocate", file: unfinishedSave, fail: "ENOSPC"}.on(p.volume).attach(s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code == 0 || !strings.Contains(s.Err.String(), "the outdated save is removed") {
		t.Errorf("exit code %d: %s", code, s.Err.String())
	}
	p.expectAllOrNothing(all, true, warmfile.ReasonSaveFailed)
}
