//go:build linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/contract"
)

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
		dir, logged := t.TempDir(), ""
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.TMPFS_MAGIC {
			t.Skipf("%s is in memory, where nothing is reserved: %v", dir, err)
		}
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
	dir := t.TempDir()
	if err := ReserveWarmFile(ended, dir, 8<<20, t.Logf); err == nil || !Missing(filepath.Join(dir, contract.WarmFile)) {
		t.Errorf("it goes on, or leaves the file: %v", err)
	}
}
