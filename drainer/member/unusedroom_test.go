//go:build linux

package member_test

import (
	"testing"

	"example.com/memcached-operator/drainer/internal/drainertest"
)

// The present file's unused pages, which were reserved while its memcached ran, make room for the new file.
func TestACacheThatIsNotFullIsReplayedOnAVolumeOfLessThanTwoFiles(t *testing.T) {
	t.Parallel()
	disk := newThinDisk(t) // of 256 MiB, less what ext4 takes
	all := drainertest.Objects(42, 1000)
	s := drainertest.Serve(t, disk.dir, "-m", "128")
	drainertest.Store(t, s.Address(), all)
	s.Settle(len(all))
	s.End("killed")
	again := drainertest.Serve(t, disk.dir, "-m", "128")
	again.WaitFor("replayed generation-1: 1000 items found: 1000 added")
	again.ExpectItems(all)
	again.End("saved")
	last := drainertest.Serve(t, disk.dir, "-m", "128")
	last.ExpectItems(all)
	last.End("saved")
}
