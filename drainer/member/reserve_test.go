//go:build linux

package member_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/volume"
)

// Otherwise memcached would die at a store.
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
	// There is also room for the writes of a planned end.
	filler := fill(t, disk.dir)
	s.End("saved")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	again := drainertest.Serve(t, disk.dir, "-m", "128")
	again.ExpectItems(all)
	if said := again.Err.String(); strings.Contains(said, "cold") {
		t.Errorf("it did not start warm: %s", said)
	}
	again.End("saved")
}

// fill fills a disk to its last block with a file.
func fill(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = error(nil); err == nil; {
			if _, err = file.Write(make([]byte, size)); err == nil {
				err = file.Sync()
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	return path
}
