package warmfile

import (
	"os"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"
)

// mapped is a file whose pages are read in the page cache, without a copy.
type mapped struct {
	memory []byte
	page   int64
}

// mapFile maps a file of that size. mapFile returns nil if that isn't possible, and the caller reads the file
// instead.
func mapFile(file any, size, page int64) *mapped {
	f, ok := file.(*os.File)
	if !ok || size < page || int64(int(size)) != size {
		return nil
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return &mapped{memory, page}
}

// at returns the page at an offset, once the kernel has read it; nil if the page can't be read. Populate
// returns an error for such a page, while touching the page would be a fault.
func (m *mapped) at(offset int64) []byte {
	if m == nil || offset+m.page > int64(len(m.memory)) {
		return nil
	}
	b := m.memory[offset : offset+m.page : offset+m.page]
	if linux.Populate(b) != nil {
		return nil
	}
	return b
}

// drop tells the kernel that the page at an offset is no longer needed.
func (m *mapped) drop(offset int64) {
	_ = unix.Madvise(m.memory[offset:offset+m.page], unix.MADV_DONTNEED)
}

func (m *mapped) close() {
	if m != nil {
		_ = unix.Munmap(m.memory)
	}
}
