package warmfile

import "bytes"

// memcached's slab mover empties a page by copying its items and chunks elsewhere. A process that was killed
// meanwhile leaves one of these:
//
//   - A copied item: the copy is already marked as linked, like its original, while its tail may still be
//     missing. The original is whole, so the copy is left out.
//   - A copied chunk: its neighbours already point to the copy, which may not be filled. The original is
//     whole until it is marked free, so the original is used.
//
// In both cases the mover has a reference to the item (its refcount is above 1). So only such items are
// looked at more closely, and only after a crash. Source: memcached's slabs.c (slabs_mover.c since 1.6.35),
// slab_rebalance_move.

// movingChunks collects the items that can be judged only at the end of the file.
type movingChunks struct {
	// busy are the offsets of chunked items with a reference.
	busy []int64
	// displaced maps the address of a chunk to the offset of the chunk that should follow, if the pointer in the
	// first of the two says something else.
	displaced map[uint64]int64
}

// These bound the remains of a crash. Each connection refers to one item, and one chunk is moved at a time; a
// connection that was storing a large item has displaced chunks, too.
const (
	maxBusy      = 1 << 20
	maxDisplaced = 1 << 16
)

func (m *movingChunks) wait(s *scan, offset int64) bool {
	if len(m.busy) == maxBusy {
		return s.fail(ReasonCorrupt, offset, "at most %d chunked items in use", maxBusy)
	}
	m.busy = append(m.busy, offset)
	return true
}

// noteChunk checks whether the chunk before the one in slot leads to it.
func (s *scan) noteChunk(offset int64, slot []byte) bool {
	base, prev := s.image.Base, u64(slot, offPrev)
	place := int64(prev - base)
	if base == 0 || prev == 0 || place < 0 || place+8 > s.size {
		return true
	}
	var b [8]byte
	missing, err := s.missing(place)
	if err == nil {
		err = ReadFull(s.file, b[:], place)
	}
	if err != nil {
		s.yield(nil, err)
		return false
	}
	if missing || u64(b[:], 0) == base+uint64(offset) {
		return true
	}
	if s.moving.displaced == nil {
		s.moving.displaced = map[uint64]int64{}
	}
	if len(s.moving.displaced) == maxDisplaced {
		return s.fail(ReasonCorrupt, offset, "at most %d chunks off their chain", maxDisplaced)
	}
	s.moving.displaced[prev] = offset
	return true
}

// finish yields the items that had to wait.
func (m *movingChunks) finish(s *scan) bool {
	moved := func(address uint64) (int64, bool) {
		offset, ok := m.displaced[address]
		return offset, ok
	}
	lacking := s.Lacking() // all pages have been read
	for _, offset := range m.busy {
		if lacking != nil {
			s.leaveOut()
			continue
		}
		page := int64(s.image.SlabPageSize)
		slot := make([]byte, min(int64(s.image.SlabChunkMax), page-offset%page))
		if err := ReadFull(s.file, slot, offset); err != nil {
			s.yield(nil, err)
			return false
		}
		flags := u16(slot, offFlags)
		h, problem := s.header(slot, flags, slot[s.firstChunk(slot, flags)+offChunkOrig])
		if problem != nil {
			problem.Offset = offset
			s.yield(nil, problem)
			return false
		}
		s.linked++
		if !s.fill(offset, slot, flags, h) {
			return false
		}
		value, err := s.assemble(offset, slot, h, moved)
		if err != nil {
			s.yield(nil, err)
			return false
		}
		s.item.Value = value
		if !s.yield(&s.item, nil) {
			return false
		}
	}
	return true
}

// unfinishedCopy tells whether the linked item in slot is a copy that the slab mover had not completed. The copy
// has the original's pointers, but its neighbours in the LRU still lead to the original, another linked item of
// the same key. If a page that would show this is missing, the item counts as such a copy.
func (s *scan) unfinishedCopy(offset int64, slot []byte) bool {
	self := s.image.Base + uint64(offset)
	next, prev := u64(slot, offNext), u64(slot, offPrev)
	return s.leadsToTwin(next, offPrev, self, slot) || s.leadsToTwin(prev, offNext, self, slot)
}

// leadsToTwin follows the pointer at field of the item at neighbour.
func (s *scan) leadsToTwin(neighbour uint64, field int64, self uint64, slot []byte) bool {
	var pointer [8]byte
	if neighbour != 0 && s.hidden(neighbour) {
		return true
	}
	if neighbour == 0 || !s.peek(neighbour+uint64(field), pointer[:]) {
		return false
	}
	original := u64(pointer[:], 0)
	nkey := int(slot[offKeyLen])
	end := itemHeader + nkey
	if s.image.UseCAS {
		end += 8
	}
	if original == 0 || original == self || end > len(slot) {
		return false
	}
	if s.hidden(original) {
		return true
	}
	twin := make([]byte, end)
	if !s.peek(original, twin) || u16(twin, offFlags)&flagLinked == 0 {
		return false
	}
	return bytes.Equal(twin[end-nkey:], slot[end-nkey:end]) && twin[offKeyLen] == slot[offKeyLen]
}

// peek reads at an address of the mapping, if it is inside the file.
func (s *scan) peek(address uint64, b []byte) bool {
	place := int64(address - s.image.Base)
	return s.image.Base != 0 && place >= 0 && place+int64(len(b)) <= s.size && ReadFull(s.file, b, place) == nil
}

// hidden tells whether an address of the mapping is on a missing page.
func (s *scan) hidden(address uint64) bool {
	place := int64(address - s.image.Base)
	if s.image.Base == 0 || place < 0 || place >= s.size {
		return false
	}
	missing, err := s.missing(place)
	return missing || err != nil
}
