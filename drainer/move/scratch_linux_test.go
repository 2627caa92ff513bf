package move_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/internal/drainertest"
	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/test/tier"
)

// The member answers, so the move doesn't wait for it, and a person needn't look at it.
func TestAFullScratchFolderIsSaidToBeThat(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{"no room for a file": "nr_inodes=1", "no room for the list": "size=8k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := memcachedtest.Start(t)
			_, servers := drainertest.Survivors(t, 1)
			all := drainertest.Objects(41, 1000)
			drainertest.Store(t, source.Address(), all)
			a := drainertest.MoveArgs(t, "gomemcache", source.Address(), servers)
			a.Scratch = t.TempDir()
			if err := unix.Mount("none", a.Scratch, "tmpfs", 0, options); err != nil {
				tier.Needs(t, "a small disk", fmt.Errorf("mount: %w", err))
			}
			t.Cleanup(func() { _ = unix.Unmount(a.Scratch, unix.MNT_DETACH) })
			r := drainertest.Move(t, a)
			r.OneLine(t, "the list of keys to be moved", "no space left on device")
			if r.Code != contract.ExitFailed || r.Receipt.Reason != "ListNotWritten" {
				t.Errorf("exit code %d, %+v", r.Code, r.Receipt)
			}
			if err := unix.Mount("none", a.Scratch, "tmpfs", unix.MS_REMOUNT, "nr_inodes=100,size=1m"); err != nil {
				t.Fatal(err)
			}
			if r := drainertest.Move(t, a); r.Code != contract.ExitOK {
				t.Errorf("the next attempt: exit code %d, %+v", r.Code, r.Receipt)
			}
		})
	}
}
