package snapshot

import (
	"encoding/binary"
	"io"
	"math/bits"

	"example.com/memcached-operator/drainer/warmfile"
)

// The first form of a save, which is only read. The checksum of its header is of the JSON
// alone. After the header, at any place:
//
//	for each used page, in the file's order:
//	  the page              Header.PageSize bytes
//	  its CRC-32C           u32, as today
//
// It is refused if it was cut short, or a page is damaged.
const (
	firstMagic    = "mcsave\x00\x01"
	checksumBytes = 4
)

// firstForm finds the pages of a save of the first form.
type firstForm struct {
	*Header
	file io.ReaderAt
	sum  uint32 // of the header
	body int64  // offset of the first page's record
	// before has, for each 64 pages, how many used ones there are before them.
	before []int64
}

func newFirstForm(file io.ReaderAt, size int64, h *Header, sum uint32, body int64) (*firstForm, error) {
	f := &firstForm{Header: h, file: file, sum: sum, body: body}
	switch want := body + h.usedPages()*f.record(); {
	case size < want:
		return nil, truncated(size, want)
	case size > want:
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save has %d bytes behind its last page", size-want)
	}
	used := int64(0)
	for i, b := range h.PageBits {
		if i%8 == 0 {
			f.before = append(f.before, used)
		}
		used += int64(bits.OnesCount8(b))
	}
	return f, nil
}

// record is how many bytes a page takes in the save.
func (f *firstForm) record() int64 { return int64(f.PageSize) + checksumBytes }

// place is where a used page begins.
func (f *firstForm) place(page int) (int64, bool) {
	n := f.before[page/64]
	for i := page / 64 * 64; i < page; i++ {
		if f.uses(i) {
			n++
		}
	}
	return f.body + n*f.record(), true
}

// read reads a used page into b, and refuses one that is damaged.
func (f *firstForm) read(file io.ReaderAt, page int, b []byte) (bool, error) {
	offset := int64(page) * int64(f.PageSize)
	place, _ := f.place(page)
	if err := warmfile.ReadFull(file, b, place); err != nil {
		return false, err
	}
	var sum [checksumBytes]byte
	if err := warmfile.ReadFull(file, sum[:], place+int64(len(b))); err != nil {
		return false, err
	}
	if want, got := binary.LittleEndian.Uint32(sum[:]), pageSum(f.sum, offset, b); got != want {
		return false, warmfile.CorruptAt(offset, "page %d, at offset %d of the save, with the checksum %08x, found %08x", page, place, want, got)
	}
	return true, nil
}
