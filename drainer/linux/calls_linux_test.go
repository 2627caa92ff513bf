package linux

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFreeRoomIsCountedInTheFileSystemsOwnBlocks, and not in the size that suits transfers.
func TestFreeRoomIsCountedInTheFileSystemsOwnBlocks(t *testing.T) {
	t.Parallel()
	for want, st := range map[int64]unix.Statfs_t{
		1000 * 4096:  {Bavail: 1000, Bsize: 1 << 20, Frsize: 4096},
		1000 * 512:   {Bavail: 1000, Bsize: 4096, Frsize: 512},
		1000 * 65536: {Bavail: 1000, Bsize: 65536}, // some say only one
	} {
		if got := freeBytes(&st); got != want {
			t.Errorf("%+v: %d bytes are free, want %d", st, got, want)
		}
	}
}
