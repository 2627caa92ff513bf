package warmfile

import (
	"os"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"
)

// mapped is a file whose pages are read where the kernel has them, without a copy.
type mapped struct {
	memory []byte
	page   int64
}

// mapFile maps a file of that size. It is nil if that isn't possible: then it is read.
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

// at is the page at an offset, once the kernel has read it; nil if it can't be had so. The kernel
// says so by an error, where touching the page would be a fault.
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

// drop lets go of the page at an offset, which nobody reads any more.
func (m *mapped) drop(offset int64) {
	_ = unix.Madvise(m.memory[offset:offset+m.page], unix.MADV_DONTNEED)
}

func (m *mapped) close() {
	if m != nil {
		_ = unix.Munmap(m.memory)
	}
}
