//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
	"example.com/memcached-operator/drainer/linux"
	"example.com/memcached-operator/test/tier"
)

// onDisk returns a directory that is not in memory, where nothing is reserved.
func onDisk(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "/var/tmp", "."} {
		dir, err := os.MkdirTemp(parent, "volume-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if inMemory, err := linux.InMemory(dir); !inMemory && err == nil {
			return dir
		}
	}
	tier.Needs(t, "a directory on a disk", errors.New("all are in memory"))
	return ""
}

// If there is not enough room, that is reported, and no room is taken. A file system that can't reserve is
// used without.
func TestTheRoomOfAWarmFileIsReservedOrRefused(t *testing.T) {
	real := Fallocate
	defer func() { Fallocate = real }()
	for name, test := range map[string]struct {
		answer error
		there  bool // the file exists before
		reason string
		stays  bool
	}{
		"there is room":             {nil, false, "", true},
		"the disk is full":          {unix.ENOSPC, false, contract.ReasonVolumeFull, false},
		"the quota is full":         {unix.EDQUOT, false, contract.ReasonVolumeFull, false},
		"full, and items are there": {unix.ENOSPC, true, contract.ReasonVolumeFull, true},
		"it can't":                  {unix.EOPNOTSUPP, false, "", true},
		"it is interrupted":         {unix.EINTR, false, "", true},
	} {
		dir, logged := onDisk(t), ""
		path := filepath.Join(dir, contract.WarmFile)
		if test.there {
			if err := os.WriteFile(path, []byte("items"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		calls := 0
		Fallocate = func(fd int, mode uint32, offset, size int64) error {
			if calls++; test.answer == nil || errors.Is(test.answer, unix.EINTR) && calls > 1 {
				return real(fd, mode, offset, size)
			}
			return test.answer
		}
		err := ReserveWarmFile(t.Context(), dir, 8<<20, func(format string, args ...any) { logged += fmt.Sprintf(format, args...) })
		if Trouble(err) != test.reason || (err != nil) != (test.reason != "") {
			t.Errorf("%s: %v, want %q", name, err, test.reason)
		}
		if said := strings.Contains(logged, "can't reserve disk space"); said != errors.Is(test.answer, unix.EOPNOTSUPP) {
			t.Errorf("%s: it logged %q", name, logged)
		}
		var file unix.Stat_t
		err = unix.Stat(path, &file)
		if (err == nil) != test.stays {
			t.Errorf("%s: the file: %v", name, err)
		}
		if b, _ := os.ReadFile(path); test.there && string(b) != "items" {
			t.Errorf("%s: the file has changed", name)
		}
		if test.stays && !test.there && !errors.Is(test.answer, unix.EOPNOTSUPP) && (file.Blocks*512 < 8<<20 || file.Size != 8<<20) {
			t.Errorf("%s: %d bytes, %d blocks", name, file.Size, file.Blocks)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("asked to end"))
	dir := onDisk(t)
	if err := ReserveWarmFile(ended, dir, 8<<20, t.Logf); err == nil || !Missing(filepath.Join(dir, contract.WarmFile)) {
		t.Errorf("it goes on, or leaves the file: %v", err)
	}
}

// If the disk has no room for the file beside the generations that are kept for a replay, the oldest goes
// first. If all of them would not make enough room, none goes.
func TestRoomForTheWarmFileIsMadeByWhatWaitsForAReplay(t *testing.T) {
	real := Fallocate
	defer func() { Fallocate = real }()
	dir := onDisk(t)
	for number := 1; number <= 3; number++ {
		g := filepath.Join(dir, GenerationName(number, false))
		if err := errors.Join(os.Mkdir(g, 0o700), os.WriteFile(filepath.Join(g, contract.WarmFile), make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	newest := func() (numbers []int) {
		t.Helper()
		kept, err := Kept(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range kept {
			numbers = append(numbers, g.Number)
		}
		return numbers
	}
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT} {
		Fallocate = func(int, uint32, int64, int64) error { return full }
		if err := ReserveWarmFile(t.Context(), dir, 1<<60, t.Logf); Trouble(err) != contract.ReasonVolumeFull || len(newest()) != 3 {
			t.Errorf("for a file that no disk can have: %v, and %v are left", err, newest())
		}
	}
	Fallocate = func(int, uint32, int64, int64) error {
		if len(newest()) > 1 {
			return unix.EDQUOT
		}
		return nil
	}
	if err := ReserveWarmFile(t.Context(), dir, 8<<20, t.Logf); err != nil || !slices.Equal(newest(), []int{3}) {
		t.Errorf("%v, and %v are left, want the newest", err, newest())
	}
}

// A file system that can't reserve room, such as one in memory or NFS, still shows how much it has. A member that has
// too little would run until its memcached dies.
func TestAFileSystemThatCantReserveHasToHaveTheRoom(t *testing.T) {
	real := Fallocate
	defer func() { Fallocate = real }()
	Fallocate = func(int, uint32, int64, int64) error { return unix.EOPNOTSUPP }
	memory := t.TempDir()
	if err := unix.Mount("none", memory, "tmpfs", 0, "size=16m"); err != nil {
		tier.Needs(t, "a file system in memory", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(memory, unix.MNT_DETACH) })
	for name, test := range map[string]struct {
		dir    string
		size   int64
		reason string
	}{
		"a disk":             {t.TempDir(), 8 << 20, ""},
		"too small a disk":   {t.TempDir(), 1 << 60, contract.ReasonVolumeFull},
		"memory":             {memory, 8 << 20, ""},
		"too little memory":  {memory, 32 << 20, contract.ReasonVolumeFull},
		"memory, once again": {memory, 8 << 20, ""},
	} {
		err := ReserveWarmFile(t.Context(), test.dir, test.size, t.Logf)
		if Trouble(err) != test.reason || (err != nil) != (test.reason != "") {
			t.Errorf("%s: %v, want %q", name, err, test.reason)
		}
	}
}
