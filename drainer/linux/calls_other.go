//go:build !linux

package linux

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Direct is nothing: files are read and written through the page cache.
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

// Allocate can't.
func Allocate(*os.File, int64) error { return unix.EOPNOTSUPP }

// PunchHole is a mode of Fallocate.
const PunchHole = 1

// Fallocate can't.
func Fallocate(int, uint32, int64, int64) error { return unix.EOPNOTSUPP }

// InMemory can't tell.
func InMemory(string) (bool, error) { return false, nil }

// WriteOut can't.
func WriteOut(*os.File, int64, int64, bool) error { return unix.ENOSYS }

// Populate can't.
func Populate([]byte) error { return unix.ENOSYS }

// FreeBytes is the room on the volume of dir.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// DiesWithParent asks for nothing: a child goes on.
func DiesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// DieWithParent does nothing: this process goes on.
func DieWithParent() error { return nil }

// AdoptOrphans can't.
func AdoptOrphans() error { return unix.ENOSYS }

// Unsent can't tell.
func Unsent(int) (int, error) { return 0, unix.ENOSYS }

// CopiesOnWrite can't tell.
func CopiesOnWrite(string) bool { return false }
