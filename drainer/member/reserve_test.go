//go:build linux

package member_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
)

// TestADiskThatIsTooSmallIsSaidAtTheStart, and not by the death of memcached at a store.
func TestADiskThatIsTooSmallIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	disk := newThinDisk(t) // of 256 MiB
	c := drainertest.MemberArgs(contract.Connection{}, disk.dir, memcachedtest.FreePort(t), "-m", "512")
	c.TerminationLog = filepath.Join(t.TempDir(), "termination-log")
	refused := drainertest.Start(t, c.Args()...)
	if code := refused.Wait(); code != contract.ExitFailed {
		t.Errorf("exit code %d: %s", code, refused.Err.String())
	}
	expectRefusal(t, c.TerminationLog, contract.ReasonVolumeFull, "reserve 512 MiB")
	if !volume.Missing(filepath.Join(disk.dir, contract.WarmFile)) {
		t.Error("the file that could not be had takes room")
	}
	all := drainertest.Objects(41, 200)
	s := drainertest.Serve(t, disk.dir, "-m", "128")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(disk.dir, contract.WarmFile), &st); err != nil || st.Blocks*512 < 128<<20 {
		t.Errorf("the file has %d bytes on the disk, %v", st.Blocks*512, err)
	}
	drainertest.Store(t, s.Address(), all)
	s.End("saved")
	again := drainertest.Serve(t, disk.dir, "-m", "128")
	again.ExpectItems(all)
	again.End("saved")
}
