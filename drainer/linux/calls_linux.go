// Package linux has the system calls that only Linux has. Everything here also compiles and can be tested on
// other systems: a call that only makes things faster does nothing there, and any other returns an error.
package linux

import (
	"cmp"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Direct is the flag of os.OpenFile that reads or writes past the page cache.
const Direct = unix.O_DIRECT

// Kinds of advice about a file's pages.
const (
	Sequential = unix.FADV_SEQUENTIAL
	DontNeed   = unix.FADV_DONTNEED
)

// Advise tells the kernel how a part of a file is used; length 0 is the rest of the file. Its errors don't
// matter.
func Advise(file *os.File, offset, length int64, advice int) error {
	return unix.Fadvise(int(file.Fd()), offset, length, advice)
}

// SyncData is file.Sync without the file's timestamps.
func SyncData(file *os.File) error { return unix.Fdatasync(int(file.Fd())) }

// Allocate allocates room on the disk for a file of that size. The error is EOPNOTSUPP or ENOSYS if that
// isn't possible.
func Allocate(file *os.File, size int64) error { return unix.Fallocate(int(file.Fd()), 0, 0, size) }

// PunchHole is the mode of Fallocate that gives a part of a file back to the disk.
const PunchHole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE

// Fallocate allocates room on the disk for a part of a file, or gives it back. The error is EOPNOTSUPP or
// ENOSYS if that isn't possible.
func Fallocate(fd int, mode uint32, offset, length int64) error {
	return unix.Fallocate(fd, mode, offset, length)
}

// InMemory tells whether the files of dir are in memory and on no disk.
func InMemory(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC, nil
}

// WriteOut makes the kernel write a part of a file to the disk, and waits for it if wait is set. The error is
// ENOSYS, EINVAL, ESPIPE or EOPNOTSUPP if that isn't possible.
func WriteOut(file *os.File, offset, length int64, wait bool) error {
	flags := unix.SYNC_FILE_RANGE_WRITE
	if wait {
		flags |= unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	}
	return unix.SyncFileRange(int(file.Fd()), offset, length, flags)
}

// Populate reads the pages of mapped memory. Populate returns an error if they can't be read, while
// touching them would be a fault.
func Populate(memory []byte) error { return unix.Madvise(memory, unix.MADV_POPULATE_READ) }

// FreeBytes returns the free room on the volume of dir.
func FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return freeBytes(&st), nil
}

// freeBytes returns the free room of a file system. Blocks are counted in fragments, which on some file
// systems are smaller than Bsize, the optimal size of transfers (statvfs(3)).
func freeBytes(st *unix.Statfs_t) int64 {
	return int64(st.Bavail) * cmp.Or(st.Frsize, st.Bsize)
}

// DiesWithParent makes the kernel kill a child when the thread that started it ends.
func DiesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// DieWithParent makes the kernel kill this process when the thread that started it ends.
func DieWithParent() error { return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }

// AdoptOrphans makes this process the parent of its descendants whose own parent has ended.
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Unsent returns how many bytes of a connection its other end has not acknowledged.
func Unsent(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCOUTQ) }

// zfsMagic is the type of OpenZFS, for which Linux has no name.
const zfsMagic = 0x2fc12fc1

// CopiesOnWrite tells whether the file system of dir is known to write each block to a new place. btrfs needs
// room for each page of mapped memory that is written, even if the file has that page already, and even in a
// file without copies (chattr +C).
func CopiesOnWrite(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && copiesOnWrite(st.Type)
}

func copiesOnWrite(fsType int64) bool {
	return fsType == unix.BTRFS_SUPER_MAGIC || fsType == unix.BCACHEFS_SUPER_MAGIC || fsType == zfsMagic
}
