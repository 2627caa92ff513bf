package linux

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The size that suits transfers doesn't matter.
func TestFreeRoomIsCountedInTheFileSystemsOwnBlocks(t *testing.T) {
	t.Parallel()
	for want, st := range map[int64]unix.Statfs_t{
		1000 * 4096:  {Bavail: 1000, Bsize: 1 << 20, Frsize: 4096},
		1000 * 512:   {Bavail: 1000, Bsize: 4096, Frsize: 512},
		1000 * 65536: {Bavail: 1000, Bsize: 65536}, // some systems set only one of them
	} {
		if got := freeBytes(&st); got != want {
			t.Errorf("%+v: %d bytes are free, want %d", st, got, want)
		}
	}
}

// Its reservation doesn't keep a memcached alive when the disk is full. With btrfs, a memcached died of
// SIGBUS at its first page.
func TestAFileSystemThatCopiesOnWriteIsToldOf(t *testing.T) {
	for fsType, want := range map[int64]bool{unix.BTRFS_SUPER_MAGIC: true, unix.BCACHEFS_SUPER_MAGIC: true, zfsMagic: true,
		unix.EXT4_SUPER_MAGIC: false, unix.XFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false, unix.NFS_SUPER_MAGIC: false} {
		if got := copiesOnWrite(fsType); got != want {
			t.Errorf("type %#x: %v, want %v", fsType, got, want)
		}
	}
}
