package warmfile

import (
	"bytes"
	"io"
	"math"
)

// ItemsIn returns how many items begin in a page of a file that memcached has saved; false if the page
// doesn't show that.
func (r *Reader) ItemsIn(page []byte) (n int64, ok bool) {
	if !r.clean || r.image.FlagsBytes == 0 {
		return 0, false
	}
	s := scan{Reader: r, flagsBytes: r.image.FlagsBytes}
	class, ok := s.classOf(page)
	if !ok {
		return 0, false
	}
	size := s.sizes[class]
	for at := 0; at+size <= len(page); at += size {
		if u16(page[at:], offFlags)&flagLinked != 0 {
			n++
		}
	}
	return n, true
}

const (
	// lastUseSamples is how many slots of a page are sampled: all slots would mean to read the whole file once
	// more. If fewer than lastUseEnough of the sample are in use, all slots are read.
	lastUseSamples = 64
	lastUseEnough  = 16
	// mostRecent is the assumed last use of a page that doesn't show it.
	mostRecent = math.MaxUint32
	// firstSlotBytes is how many bytes of a page's first slot suffice to find its class.
	firstSlotBytes = 512
)

// LastUse returns when an item on the page at offset was last used: the latest of a sample, in seconds of
// memcached's own clock. A chunk was last used when its item was.
func (r *Reader) LastUse(offset int64) (uint32, error) {
	s := scan{Reader: r, flagsBytes: r.image.FlagsBytes}
	class, err := s.classAt(offset)
	if err != nil || class == 0 {
		return mostRecent, err
	}
	slots := r.image.SlabPageSize / s.sizes[class]
	step := (slots + lastUseSamples - 1) / lastUseSamples
	latest, looked, err := s.lastUse(io.NewSectionReader(r.file, offset, int64(r.image.SlabPageSize)), class, step)
	if err != nil || step == 1 || looked >= lastUseEnough {
		return latest, err
	}
	page := make([]byte, r.image.SlabPageSize)
	if err := ReadFull(r.file, page, offset); err != nil {
		return 0, err
	}
	latest, _, err = s.lastUse(bytes.NewReader(page), class, 1)
	return latest, err
}

// lastUse looks at every step-th slot of a page, and returns in how many of them there is an item or a chunk.
func (s *scan) lastUse(page io.ReaderAt, class uint8, step int) (latest uint32, looked int, err error) {
	size := s.sizes[class]
	var b [itemHeader]byte
	for i := 0; i < s.image.SlabPageSize/size; i += step {
		if err := ReadFull(page, b[:], int64(i*size)); err != nil {
			return 0, looked, err
		}
		if u16(b[:], offFlags) == flagChunk && !s.peek(u64(b[:], offChunkHead), b[:]) {
			return mostRecent, lastUseEnough, nil
		}
		if u16(b[:], offFlags)&flagLinked != 0 {
			latest = max(latest, u32(b[:], offTime))
			looked++
		}
	}
	return latest, looked, nil
}

// classAt returns the slab class of the page at offset; 0 if the page doesn't show it.
func (s *scan) classAt(offset int64) (uint8, error) {
	b := make([]byte, firstSlotBytes)
	if err := ReadFull(s.file, b, offset); err != nil {
		return 0, err
	}
	if class, certain := s.firstSlot(b); certain && class >= 1 && class <= s.largest {
		return class, nil
	}
	b = make([]byte, s.image.SlabPageSize)
	if err := ReadFull(s.file, b, offset); err != nil {
		return 0, err
	}
	class, ok := s.classOf(b)
	if !ok {
		return 0, nil
	}
	return class, nil
}
