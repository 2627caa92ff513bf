//go:build linux

package volume

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/snapshot"
	"example.com/memcached-operator/test/tier"
)

// smallDisk mounts a file system of that size. An ext2 reserves no room for a file: a write finds it full.
func smallDisk(t *testing.T, kind string, size string) string {
	t.Helper()
	dir := t.TempDir()
	steps := [][]string{{"mount", "-t", "tmpfs", "-o", "size=" + size, "none", dir}}
	if kind == "ext2" {
		image := filepath.Join(t.TempDir(), "disk")
		steps = [][]string{{"truncate", "-s", size, image}, {"mkfs.ext2", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}}
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(t.Context(), step[0], step[1:]...).CombinedOutput(); err != nil {
			tier.Needs(t, "a file system of its own, which root mounts", fmt.Errorf("%v: %w: %s", step, err, out))
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// There was room for both when it began, but another process took it, or there is a quota. Then the save
// continues.
func TestASaveThatFindsTheDiskFullDropsWhatIsOutdated(t *testing.T) {
	free := FreeBytes
	FreeBytes = func(string) (int64, error) { return 1 << 40, nil }
	defer func() { FreeBytes = free }()
	dir := savedMember(t)
	_, want := readAll(t, dir)
	for _, kind := range []string{"ext2", "tmpfs"} {
		for _, before := range []string{"a save", "a generation"} {
			t.Run(kind+", "+before, func(t *testing.T) {
				volume := smallDisk(t, kind, "24M")
				if _, err := Save(t.Context(), dir, volume, SaveOptions{Logf: t.Logf}); err != nil {
					t.Fatal(err)
				}
				if before == "a generation" {
					if err := Keep(volume, 1, true); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := NoteInUse(volume); err != nil {
					t.Fatal(err)
				}
				if _, err := Save(context.Background(), dir, volume, SaveOptions{Logf: t.Logf}); err != nil {
					t.Fatal(err)
				}
				if kept, err := Kept(volume); err != nil || len(kept) > 0 {
					t.Errorf("kept is %v, %v", kept, err)
				}
				if _, got := readAll(t, volume); got != want {
					t.Errorf("%d items are saved, want %d", got, want)
				}
			})
		}
	}
	t.Run("there is no room at all", func(t *testing.T) {
		volume := smallDisk(t, "ext2", "8M")
		if _, err := Save(t.Context(), dir, volume, SaveOptions{Logf: t.Logf}); !snapshot.IsFull(err) || Trouble(err) != contract.ReasonVolumeFull {
			t.Errorf("saved with %v", err)
		}
		if _, err := os.Stat(filepath.Join(volume, newSave)); err != nil {
			t.Errorf("what was written is gone: %v", err)
		}
	})
}
