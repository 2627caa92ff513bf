package warmfile

// classOf finds the slab class of a used page. The first slot shows the class, except while that slot changes
// its state (the header of a chunked item has the largest class, not its page's). Then classOf looks for the
// class that every slot of the page is consistent with.
func (s *scan) classOf(b []byte) (uint8, bool) {
	class, certain := s.firstSlot(b)
	if certain && !s.busy(b) {
		return class, class >= 1 && class <= s.largest
	}
	if class >= 1 && class <= s.largest && s.consistent(b, class) {
		return class, true
	}
	for c := uint8(1); c <= s.largest; c++ {
		if c != class && s.consistent(b, c) {
			return c, true
		}
	}
	return 0, false
}

// firstSlot returns the class that the first slot shows, and whether that is certain.
func (s *scan) firstSlot(b []byte) (class uint8, certain bool) {
	flags, class := u16(b, offFlags), b[offClass]&classMask
	switch {
	case flags&flagLinked != 0 && flags&flagChunked != 0:
		at := s.firstChunk(b, flags) + offChunkOrig
		if at >= len(b) {
			return 0, true
		}
		return b[at], true
	case flags&flagLinked != 0 || flags == flagChunk:
		return class, true
	}
	return class, flags == flagSlabbed && class != s.largest
}

// firstChunk is the offset, in a chunked item's slot, of its first chunk.
func (s *scan) firstChunk(slot []byte, flags uint16) int {
	at := itemHeader + int(slot[offKeyLen]) + 1
	if flags&flagCAS != 0 {
		at += 8
	}
	if flags&flagClient != 0 {
		at += s.clientFlags()
	}
	return at
}

// consistent tells whether each slot of a page could be one of class.
func (s *scan) consistent(b []byte, class uint8) bool {
	size := s.sizes[class]
	for at := 0; at+size <= len(b); at += size {
		slot := b[at : at+size]
		flags := u16(slot, offFlags)
		if flags&flagLinked == 0 {
			if !idle(slot, flags, class, s.largest) {
				return false
			}
			continue
		}
		if s.busy(slot) {
			continue
		}
		if _, problem := s.header(slot, flags, class); problem != nil {
			return false
		}
	}
	return true
}

// idle tells whether a slot without an item looks like a slot of that class: free, a chunk of some item,
// being filled or being emptied. The slab mover marks a slot that it has cleared with FETCHED. Versions
// before 1.6.9 leave the largest class in the freed header of a chunked item.
func idle(slot []byte, flags uint16, class, largest uint8) bool {
	own := slot[offClass] & classMask
	switch {
	case flags&flagSlabbed != 0:
		return flags&^(flagSlabbed|flagFetched) == 0 && (own == class || own == largest)
	case flags&flagChunk != 0:
		return flags == flagChunk && own == class
	case flags&^(linkedFlags&^flagLinked) != 0:
		return false
	case own == 0:
		return flags == 0
	}
	return own == class || own == largest
}
