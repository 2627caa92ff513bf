//go:build !linux

package linux

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Direct is 0: files are read and written through the page cache.
const Direct = 0

// Advice has no effect here.
const (
	Sequential = iota
	DontNeed
)

// Advise does nothing.
func Advise(*os.File, int64, int64, int) error { return nil }

// SyncData is file.Sync.
func SyncData(file *os.File) error { return file.Sync() }

// Allocate isn't possible here.
func Allocate(*os.File, int64) error { return unix.EOPNOTSUPP }

// PunchHole is a mode of Fallocate.
const PunchHole = 1

// Fallocate isn't possible here.
func Fallocate(int, uint32, int64, int64) error { return unix.EOPNOTSUPP }

// InMemory returns false, because this is unknown here.
func InMemory(string) (bool, error) { return false, nil }

// WriteOut isn't possible here.
func WriteOut(*os.File, int64, int64, bool) error { return unix.ENOSYS }

// Populate isn't possible here.
func Populate([]byte) error { return unix.ENOSYS }

// FreeBytes returns the free room on the volume of dir.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// DiesWithParent has no effect here: a child goes on.
func DiesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// DieWithParent has no effect here: this process goes on.
func DieWithParent() error { return nil }

// AdoptOrphans isn't possible here.
func AdoptOrphans() error { return unix.ENOSYS }

// Unsent isn't possible here.
func Unsent(int) (int, error) { return 0, unix.ENOSYS }

// CopiesOnWrite returns false, because this is unknown here.
func CopiesOnWrite(string) bool { return false }
