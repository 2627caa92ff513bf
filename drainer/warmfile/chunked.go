package warmfile

import (
	"bytes"
	"cmp"
	"errors"
)

// basePage is the alignment of a mapping.
const basePage = 4 << 10

// chunkedHeader checks the header of an item whose value is in a chain of chunks. Its
// class is the largest one; the class of its page is in its first chunk.
func (s *scan) chunkedHeader(slot []byte, h header, class uint8) *Error {
	chunk := h.value
	switch {
	case slot[offClass]&classMask != s.largest:
		return refuse(ReasonCorrupt, "a chunked item of slab class %d, found %d", s.largest, slot[offClass]&classMask)
	case chunk+chunkHeader > len(slot):
		return refuse(ReasonCorrupt, "a first chunk within %d bytes, found it at %d", len(slot), chunk)
	case slot[chunk+offChunkOrig] != class:
		return refuse(ReasonCorrupt, "a header of slab class %d, found %d", class, slot[chunk+offChunkOrig])
	}
	return nil
}

// chain walks an item's chunks.
type chain struct {
	base   uint64
	head   uint64 // address of the item
	value  []byte
	left   int // bytes of the value that are still to come
	chunks int // how many may still follow
}

// chunked assembles the value of the item in slot and yields the item.
func (s *scan) chunked(offset int64, slot []byte, h header) bool {
	value, problem := s.assemble(offset, slot, h, nil)
	if errors.Is(problem, errGap) {
		s.linked--
		return s.leaveOut()
	}
	if problem != nil {
		s.yield(nil, problem)
		return false
	}
	s.item.Value = value
	return s.yield(&s.item, nil)
}

// assemble returns the value of a chunked item. moved may be nil. Given the address of a chunk, moved returns the
// place of the next chunk, if that was being moved.
func (s *scan) assemble(offset int64, slot []byte, h header, moved func(address uint64) (int64, bool)) ([]byte, error) {
	first := slot[h.value:]
	c := chain{base: s.image.Base, head: u64(first, offChunkHead), left: h.bytes,
		chunks: 16 + 4*(h.bytes/s.image.SlabChunkMax), value: s.value[:0]}
	if c.base == 0 {
		c.base = c.head - uint64(offset)
	}
	switch strayed := c.head != c.base+uint64(offset); {
	case strayed && moved == nil, c.base%basePage != 0:
		return nil, CorruptAt(offset, "a first chunk owned by its item, found owner %#x with base %#x", c.head, c.base)
	}
	used := int(int32(u32(first, offChunkUsed)))
	if used < 0 || used > len(first)-chunkHeader || used > c.left {
		return nil, CorruptAt(offset, "a first chunk of at most %d bytes, found %d", len(first)-chunkHeader, used)
	}
	c.value = append(c.value, first[chunkHeader:chunkHeader+used]...)
	c.left -= used
	at, next := c.base+uint64(offset)+uint64(h.value), u64(first, offNext)
	earlier := int64(-1)
	for n := 1; c.left > 0; n++ {
		place := int64(next - c.base)
		if moved != nil {
			if old, ok := moved(at); ok {
				place = old
			}
		}
		if place == earlier {
			return nil, CorruptAt(offset, "an item whose chunks end, found the one at %d in its chain twice", place)
		}
		if n&(n-1) == 0 {
			earlier = place // Brent's algorithm: a chain with a cycle returns to this place
		}
		at = c.base + uint64(place)
		var err error
		if next, err = s.link(&c, place, moved != nil); err != nil {
			return nil, err
		}
	}
	s.value = c.value
	// An append leaves chunks without content, at the end and in the middle.
	if !bytes.HasSuffix(c.value, []byte("\r\n")) {
		return nil, CorruptAt(offset, "a chain of chunks that ends in \\r\\n after %d bytes", h.bytes)
	}
	return c.value[:len(c.value)-2], nil
}

// link appends the chunk at place to the chain and returns the address of the
// next one.
func (s *scan) link(c *chain, place int64, anyHead bool) (uint64, error) {
	pageSize := int64(s.image.SlabPageSize)
	if c.chunks--; place < 0 || place+chunkHeader > s.size || c.chunks < 0 {
		return 0, CorruptAt(int64(c.head-c.base), "an item whose chunks lie in the file's %d bytes and end, found one at %d", s.size, place)
	}
	if missing, err := s.missing(place); err != nil || missing {
		return 0, cmp.Or(err, errGap)
	}
	var b [chunkHeader]byte
	if err := ReadFull(s.file, b[:], place); err != nil {
		return 0, err
	}
	class := b[offClass] & classMask
	if class < 1 || class > s.largest || u16(b[:], offFlags) != flagChunk {
		return 0, CorruptAt(place, "a chunk, found flags %#x and class %d", u16(b[:], offFlags), class)
	}
	size, used := int64(s.sizes[class]), int64(int32(u32(b[:], offChunkUsed)))
	room := int64(int32(u32(b[:], offChunkSize)))
	within := place % pageSize
	switch {
	case within%size != 0 || within+size > pageSize:
		return 0, CorruptAt(place, "a chunk at a slot of %d bytes", size)
	case used < 0 || used > room || room > size-chunkHeader || used > int64(c.left):
		return 0, CorruptAt(place, "a chunk of at most %d bytes, found %d used of %d", size-chunkHeader, used, room)
	case !anyHead && u64(b[:], offChunkHead) != c.head:
		return 0, CorruptAt(place, "a chunk owned by %#x, found %#x", c.head, u64(b[:], offChunkHead))
	}
	if s.chained += size; s.chained > s.size {
		return 0, CorruptAt(place, "a chunk that belongs to one item, found more chunks in all items than the file's %d bytes hold", s.size)
	}
	n := len(c.value)
	c.value = append(c.value, make([]byte, used)...)
	c.left -= int(used)
	return u64(b[:], offNext), ReadFull(s.file, c.value[n:], place+chunkHeader)
}

// CorruptAt returns a refusal about a place in the file.
func CorruptAt(offset int64, format string, args ...any) *Error {
	e := refuse(ReasonCorrupt, format, args...)
	e.Offset = offset
	return e
}
