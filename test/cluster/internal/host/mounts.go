package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point, kind, options string
}

func mounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

func parseMounts(mountinfo string) []mount {
	var all []mount
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !found || len(head) < 5 || len(tail) < 3 {
			continue
		}
		all = append(all, mount{point: unescape(head[4]), kind: tail[0], options: tail[2]})
	}
	return all
}

// unescape replaces each \ooo of mountinfo by its character.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// UnmountUnder unmounts everything that is mounted at or below the
// directories, the last mounted first.
func UnmountUnder(directories ...string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	// The kernel names mounts by their real paths.
	for _, directory := range directories {
		if real, err := filepath.EvalSymlinks(directory); err == nil && real != directory {
			directories = append(slices.Clone(directories), real)
		}
	}
	var failed []error
	for i := len(all) - 1; i >= 0; i-- {
		if !isUnder(all[i].point, directories) {
			continue
		}
		if err := unmount(all[i].point); err != nil {
			failed = append(failed, fmt.Errorf("unmount %s: %w", all[i].point, err))
		}
	}
	return errors.Join(failed...)
}

// unmount tries for a moment, and then detaches a mount that is still busy.
func unmount(point string) error {
	for range 10 {
		if err := syscall.Unmount(point, 0); err != syscall.EBUSY {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return syscall.Unmount(point, syscall.MNT_DETACH)
}

func isUnder(path string, directories []string) bool {
	for _, directory := range directories {
		if path == directory || strings.HasPrefix(path, directory+"/") {
			return true
		}
	}
	return false
}
