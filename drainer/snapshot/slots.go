package snapshot

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"

	"example.com/memcached-operator/drainer/warmfile"
)

const (
	slotMagic   = "mcpage\x00\x02"
	slotHeader  = block
	slotSum     = 48 // where the checksum of a slot's header is
	footerMagic = "mcsaved\x02"
	footerSum   = 24
	footerBytes = footerSum + 4
	entryBytes  = 24
	// unknownItems is the number of items in a page that nobody can tell.
	unknownItems = ^uint64(0)
	// headerReaders read slots' headers side by side: each is a read of its own for the
	// disk.
	headerReaders = 16
)

// entry is what the index says of a slot.
type entry struct {
	offset int64 // of the page, in the warm file
	sum    uint32
	items  uint64
	// elapsed is in milliseconds since the save was begun. The index doesn't have it.
	elapsed uint64
}

func (e entry) encode(header uint32, slot int) []byte {
	b := make([]byte, slotHeader)
	copy(b, slotMagic)
	binary.LittleEndian.PutUint32(b[8:], header)
	binary.LittleEndian.PutUint32(b[12:], e.sum)
	binary.LittleEndian.PutUint64(b[16:], uint64(slot))
	binary.LittleEndian.PutUint64(b[24:], uint64(e.offset))
	binary.LittleEndian.PutUint64(b[32:], e.items)
	binary.LittleEndian.PutUint64(b[40:], e.elapsed)
	binary.LittleEndian.PutUint32(b[slotSum:], crc32.Checksum(b[:slotSum], castagnoli))
	return b
}

// decodeSlot tells whether b is the header of that slot of that save.
func decodeSlot(b []byte, header uint32, slot int) (e entry, ok bool) {
	if string(b[:8]) != slotMagic || binary.LittleEndian.Uint32(b[8:]) != header ||
		binary.LittleEndian.Uint64(b[16:]) != uint64(slot) ||
		binary.LittleEndian.Uint32(b[slotSum:]) != crc32.Checksum(b[:slotSum], castagnoli) {
		return e, false
	}
	return entry{offset: int64(binary.LittleEndian.Uint64(b[24:])), sum: binary.LittleEndian.Uint32(b[12:]),
		items: binary.LittleEndian.Uint64(b[32:]), elapsed: binary.LittleEndian.Uint64(b[40:])}, true
}

// layout says where the parts of a save are.
type layout struct {
	*Header
	sum  uint32 // of the header
	body int64  // offset of the first slot
}

func newLayout(h *Header, sum uint32, headerEnd int64) layout {
	return layout{h, sum, (headerEnd + block - 1) / block * block}
}

func (l layout) slotBytes() int64 { return slotHeader + int64(l.PageSize) }

func (l layout) slots() int { return int(l.usedPages()) }

func (l layout) slot(n int) int64 { return l.body + int64(n)*l.slotBytes() }

// tailBytes is the size of the index and the footer.
func (l layout) tailBytes() int64 {
	return (l.usedPages()*entryBytes + footerBytes + block - 1) / block * block
}

// size of the whole save.
func (l layout) size() int64 { return l.slot(l.slots()) + l.tailBytes() }

// encodeTail is the index and the footer.
func (l layout) encodeTail(entries []entry, elapsed uint64) []byte {
	b := make([]byte, 0, l.tailBytes())
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint64(b, uint64(e.offset))
		b = binary.LittleEndian.AppendUint32(b, e.sum)
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, e.items)
	}
	index := crc32.Checksum(b, castagnoli)
	footer := binary.LittleEndian.AppendUint32([]byte(footerMagic), l.sum)
	footer = binary.LittleEndian.AppendUint32(footer, index)
	footer = binary.LittleEndian.AppendUint64(footer, elapsed)
	footer = binary.LittleEndian.AppendUint32(footer, crc32.Checksum(footer, castagnoli))
	return padded(append(b, footer...))
}

// secondForm finds the pages of a save of the second form.
type secondForm struct {
	layout
	file     io.ReaderAt
	fileSize int64
	// complete: the index and the footer are there, and right.
	complete bool
	// elapsed is in milliseconds what the save took, or how far it had come.
	elapsed uint64

	once sync.Once
	err  error // of reading the slots' headers
	// entries of the slots; one that is not whole has the offset -1.
	entries []entry
	// slotOf has the slot of each page, -1 none.
	slotOf []int32

	mu sync.Mutex
	// lost are pages that proved damaged.
	lost map[int]bool
}

func newSecondForm(file io.ReaderAt, size int64, h *Header, sum uint32, headerEnd int64) (*secondForm, error) {
	f := &secondForm{layout: newLayout(h, sum, headerEnd), file: file, fileSize: size}
	if h.PageSize%block != 0 {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header: pages of %d bytes", h.PageSize)
	}
	if size > f.size() {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save has %d bytes behind its end", size-f.size())
	}
	if size < f.size() {
		return f, nil
	}
	return f, f.readTail()
}

// readTail reads the index, if the footer says that it is this save's.
func (f *secondForm) readTail() error {
	tail := make([]byte, f.tailBytes())
	if err := warmfile.ReadFull(f.file, tail, f.slot(f.slots())); err != nil {
		return err
	}
	index, footer := tail[:f.slots()*entryBytes], tail[f.slots()*entryBytes:]
	if string(footer[:8]) != footerMagic || binary.LittleEndian.Uint32(footer[8:]) != f.sum ||
		binary.LittleEndian.Uint32(footer[footerSum:]) != crc32.Checksum(footer[:footerSum], castagnoli) ||
		binary.LittleEndian.Uint32(footer[12:]) != crc32.Checksum(index, castagnoli) {
		return nil
	}
	entries := make([]entry, f.slots())
	for i := range entries {
		b := index[i*entryBytes:]
		entries[i] = entry{offset: int64(binary.LittleEndian.Uint64(b)), sum: binary.LittleEndian.Uint32(b[8:]), items: binary.LittleEndian.Uint64(b[16:])}
	}
	f.once.Do(func() { f.index(entries) })
	for page := range f.pages() {
		if f.uses(page) && f.slotOf[page] < 0 {
			return warmfile.Refuse(warmfile.ReasonCorrupt, "the save's index has a page twice, and not page %d", page)
		}
	}
	f.complete, f.elapsed = true, binary.LittleEndian.Uint64(footer[16:])
	return nil
}

// index takes the entries of the slots. One that is about no used page, or a page that an
// earlier slot has, counts for nothing.
func (f *secondForm) index(entries []entry) {
	f.entries, f.slotOf = entries, make([]int32, f.pages())
	for i := range f.slotOf {
		f.slotOf[i] = -1
	}
	for i, e := range entries {
		page, rest := e.offset/int64(f.PageSize), e.offset%int64(f.PageSize)
		if rest != 0 || e.offset < 0 || page >= int64(f.pages()) || !f.uses(int(page)) || f.slotOf[page] >= 0 {
			entries[i].offset = -1
			continue
		}
		f.slotOf[page] = int32(i)
	}
}

// rebuild makes the index of a save that was cut short.
func (f *secondForm) rebuild() error {
	f.once.Do(func() {
		// A slot that begins after the file's end doesn't exist, whatever the header says.
		entries := make([]entry, min(int64(f.slots()), max(0, f.fileSize-f.body+f.slotBytes()-1)/f.slotBytes()))
		var next atomic.Int64
		var readers sync.WaitGroup
		errs := make([]error, headerReaders)
		for r := range headerReaders {
			readers.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(entries) && errs[r] == nil; i = int(next.Add(1)) - 1 {
					entries[i], errs[r] = f.readSlot(i)
				}
			})
		}
		readers.Wait()
		f.err = errors.Join(errs...)
		f.index(entries)
		for _, e := range entries {
			if e.offset >= 0 {
				f.elapsed = max(f.elapsed, e.elapsed)
			}
		}
	})
	return f.err
}

// readSlot reads the header of a slot. One that isn't there has the offset -1.
func (f *secondForm) readSlot(n int) (entry, error) {
	var b [slotSum + 4]byte
	err := warmfile.ReadFull(f.file, b[:], f.slot(n))
	if err != nil && !warmfile.IsReason(err, warmfile.ReasonTruncated) {
		return entry{offset: -1}, err
	}
	if e, ok := decodeSlot(b[:], f.sum, n); ok && err == nil {
		return e, nil
	}
	return entry{offset: -1}, nil
}

// place is where a used page begins; false if it is missing.
func (f *secondForm) place(page int) (int64, bool) {
	n := f.slotOf[page]
	if n < 0 || f.isLost(page) {
		return 0, false
	}
	return f.slot(int(n)) + slotHeader, true
}

func (f *secondForm) isLost(page int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost[page]
}

func (f *secondForm) lose(page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		f.lost = map[int]bool{}
	}
	f.lost[page] = true
}

// read reads a used page into b; false if it is missing, or damaged.
func (f *secondForm) read(page int, b []byte) (bool, error) {
	if err := f.rebuild(); err != nil {
		return false, err
	}
	place, ok := f.place(page)
	if !ok {
		return false, nil
	}
	err := warmfile.ReadFull(f.file, b, place)
	if warmfile.IsReason(err, warmfile.ReasonTruncated) || err == nil && !f.sound(page, b) {
		f.lose(page)
		return false, nil
	}
	return err == nil, err
}

// sound tells whether b is the page, as its slot says.
func (f *secondForm) sound(page int, b []byte) bool {
	return pageSum(f.sum, int64(page)*int64(f.PageSize), b) == f.entries[f.slotOf[page]].sum
}

// missing is how many used pages are, so far as is known.
func (f *secondForm) missing() (n int) {
	for page := range f.pages() {
		if f.uses(page) && (f.slotOf[page] < 0 || f.isLost(page)) {
			n++
		}
	}
	return n
}

// items is how many items begin in the pages of the slots; false if a page of them
// doesn't tell.
func (f *secondForm) items() (sum int64, known bool) {
	for _, e := range f.entries {
		switch {
		case e.offset < 0:
		case e.items > uint64(f.PageSize):
			return 0, false
		default:
			sum += int64(e.items)
		}
	}
	return sum, true
}
