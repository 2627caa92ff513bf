package snapshot

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"example.com/memcached-operator/drainer/warmfile"
)

const (
	slotMagic   = "mcpage\x00\x02"
	slotHeader  = block
	slotSum     = 48 // offset of the checksum in a slot's header
	footerMagic = "mcsaved\x02"
	footerSum   = 24
	footerBytes = footerSum + 4
	entryBytes  = 24
	// unknownItems is the value of an unknown number of items in a page.
	unknownItems = math.MaxUint32
	// tailPart is how much of the index is in memory at once: whole entries and whole blocks.
	tailPart = 64 * entryBytes * block / 8
	// headerReaders is how many goroutines read slots' headers in parallel: each header is a separate read of
	// the disk.
	headerReaders = 16
)

// entry is the index's entry for a slot, kept small because there are many.
type entry struct {
	page  int32 // number of the page in the warm file; -1: the slot is not whole
	sum   uint32
	items uint32 // unknownItems if unknown
}

// storedItems returns the number of items in the form of the file.
func (e entry) storedItems() uint64 {
	if e.items == unknownItems {
		return math.MaxUint64
	}
	return uint64(e.items)
}

// newEntry converts a stored entry. newEntry ignores an offset where no page begins, and a number of items that no
// page can have.
func (l layout) newEntry(offset uint64, sum uint32, items uint64) entry {
	e := entry{page: -1, sum: sum, items: unknownItems}
	if page := offset / uint64(l.PageSize); offset%uint64(l.PageSize) == 0 && page < uint64(l.pages()) {
		e.page = int32(page)
	}
	if items <= uint64(l.PageSize) {
		e.items = uint32(items)
	}
	return e
}

// encodeSlot returns a slot's header.
func (l layout) encodeSlot(slot int, e entry, elapsed uint64) []byte {
	b := make([]byte, slotHeader)
	copy(b, slotMagic)
	binary.LittleEndian.PutUint32(b[8:], l.sum)
	binary.LittleEndian.PutUint32(b[12:], e.sum)
	binary.LittleEndian.PutUint64(b[16:], uint64(slot))
	binary.LittleEndian.PutUint64(b[24:], uint64(l.offset(e.page)))
	binary.LittleEndian.PutUint64(b[32:], e.storedItems())
	binary.LittleEndian.PutUint64(b[40:], elapsed)
	binary.LittleEndian.PutUint32(b[slotSum:], crc32.Checksum(b[:slotSum], castagnoli))
	return b
}

// decodeSlot tells whether b is the header of that slot of this save.
func (l layout) decodeSlot(b []byte, slot int) (e entry, elapsed uint64, ok bool) {
	if string(b[:8]) != slotMagic || binary.LittleEndian.Uint32(b[8:]) != l.sum ||
		binary.LittleEndian.Uint64(b[16:]) != uint64(slot) ||
		binary.LittleEndian.Uint32(b[slotSum:]) != crc32.Checksum(b[:slotSum], castagnoli) {
		return e, 0, false
	}
	e = l.newEntry(binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint64(b[32:]))
	return e, binary.LittleEndian.Uint64(b[40:]), true
}

// layout has the positions of a save's parts.
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

// tailBytes returns the size of the index and the footer.
func (l layout) tailBytes() int64 {
	return (l.usedPages()*entryBytes + footerBytes + block - 1) / block * block
}

// size returns the size of the whole save.
func (l layout) size() int64 { return l.slot(l.slots()) + l.tailBytes() }

// offset returns the offset of a page in the warm file.
func (l layout) offset(page int32) int64 { return int64(page) * int64(l.PageSize) }

// encodeTail yields the index and the footer, in aligned parts of at most tailPart.
func (l layout) encodeTail(entries []entry, elapsed uint64, write func(b []byte) error) error {
	part := warmfile.Aligned(tailPart + block)[:0]
	flush := func() error {
		err := write(part)
		part = part[:0]
		return err
	}
	index := uint32(0)
	for _, e := range entries {
		at := len(part)
		part = binary.LittleEndian.AppendUint64(part, uint64(l.offset(e.page)))
		part = binary.LittleEndian.AppendUint32(part, e.sum)
		part = binary.LittleEndian.AppendUint32(part, 0)
		part = binary.LittleEndian.AppendUint64(part, e.storedItems())
		index = crc32.Update(index, castagnoli, part[at:])
		if len(part) == tailPart {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	footer := binary.LittleEndian.AppendUint32([]byte(footerMagic), l.sum)
	footer = binary.LittleEndian.AppendUint32(footer, index)
	footer = binary.LittleEndian.AppendUint64(footer, elapsed)
	footer = binary.LittleEndian.AppendUint32(footer, crc32.Checksum(footer, castagnoli))
	part = padded(append(part, footer...))
	return flush()
}

// index finds the pages of a save.
type index struct {
	layout
	file     io.ReaderAt
	fileSize int64
	// complete means that the index and the footer are there and valid.
	complete bool
	// elapsed is how long the save took, or had taken when it was cut short, in milliseconds.
	elapsed uint64

	once    sync.Once
	err     error // of reading the slots' headers
	entries []entry
	// slotOf has the slot of each page, -1 if there is none.
	slotOf []int32

	mu sync.Mutex
	// lost marks the pages that proved damaged; nil if none has.
	lost []bool
}

func newIndex(file io.ReaderAt, size int64, h *Header, sum uint32, headerEnd int64) (*index, error) {
	f := &index{layout: newLayout(h, sum, headerEnd), file: file, fileSize: size}
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

// readTail reads the index, if the footer belongs to this save.
func (f *index) readTail() error {
	place := f.slot(f.slots())
	end := place + f.usedPages()*entryBytes
	footer := make([]byte, footerBytes)
	if err := warmfile.ReadFull(f.file, footer, end); err != nil {
		return err
	}
	if string(footer[:8]) != footerMagic || binary.LittleEndian.Uint32(footer[8:]) != f.sum ||
		binary.LittleEndian.Uint32(footer[footerSum:]) != crc32.Checksum(footer[:footerSum], castagnoli) {
		return nil
	}
	entries, sum := make([]entry, 0, f.slots()), uint32(0)
	part := make([]byte, min(tailPart, end-place))
	for ; place < end; place += int64(len(part)) {
		part = part[:min(int64(len(part)), end-place)]
		if err := warmfile.ReadFull(f.file, part, place); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, part)
		for b := range slices.Chunk(part, entryBytes) {
			entries = append(entries, f.newEntry(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint64(b[16:])))
		}
	}
	if binary.LittleEndian.Uint32(footer[12:]) != sum {
		return nil
	}
	f.once.Do(func() { f.take(entries) })
	for page := range f.pages() {
		if f.uses(page) && f.slotOf[page] < 0 {
			return warmfile.Refuse(warmfile.ReasonCorrupt, "the save's index has a page twice, and not page %d", page)
		}
	}
	f.complete, f.elapsed = true, binary.LittleEndian.Uint64(footer[16:])
	return nil
}

// take adopts the entries of the slots. take ignores entries of unused pages, and a second entry of a page.
func (f *index) take(entries []entry) {
	f.entries, f.slotOf = entries, make([]int32, f.pages())
	for i := range f.slotOf {
		f.slotOf[i] = -1
	}
	for i, e := range entries {
		if e.page < 0 || !f.uses(int(e.page)) || f.slotOf[e.page] >= 0 {
			entries[i].page = -1
			continue
		}
		f.slotOf[e.page] = int32(i)
	}
}

// rebuild makes the index of a save that was cut short.
func (f *index) rebuild() error {
	f.once.Do(func() {
		// The header may promise more slots than begin before the file's end.
		entries := make([]entry, min(int64(f.slots()), max(0, f.fileSize-f.body+f.slotBytes()-1)/f.slotBytes()))
		var next atomic.Int64
		var readers sync.WaitGroup
		var errs [headerReaders]error
		var elapsed [headerReaders]uint64
		for r := range headerReaders {
			readers.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(entries) && errs[r] == nil; i = int(next.Add(1)) - 1 {
					var at uint64
					entries[i], at, errs[r] = f.readSlot(i)
					elapsed[r] = max(elapsed[r], at)
				}
			})
		}
		readers.Wait()
		f.err = errors.Join(errs[:]...)
		f.elapsed = slices.Max(elapsed[:])
		f.take(entries)
	})
	return f.err
}

// readSlot reads the header of a slot. The entry has no page if the header isn't valid.
func (f *index) readSlot(n int) (e entry, elapsed uint64, err error) {
	missing := entry{page: -1}
	var b [slotSum + 4]byte
	if err := warmfile.ReadFull(f.file, b[:], f.slot(n)); warmfile.IsReason(err, warmfile.ReasonTruncated) {
		return missing, 0, nil
	} else if err != nil {
		return missing, 0, err
	}
	if e, elapsed, ok := f.decodeSlot(b[:], n); ok {
		return e, elapsed, nil
	}
	return missing, 0, nil
}

// place returns the position of a used page in the save; false if it is missing.
func (f *index) place(page int) (int64, bool) {
	n := f.slotOf[page]
	if n < 0 || f.isLost(page) {
		return 0, false
	}
	return f.slot(int(n)) + slotHeader, true
}

func (f *index) isLost(page int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost != nil && f.lost[page]
}

func (f *index) lose(page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		f.lost = make([]bool, f.pages())
	}
	f.lost[page] = true
}

// read reads a used page into b; false if it is missing or damaged.
func (f *index) read(file io.ReaderAt, page int, b []byte) (bool, error) {
	if err := f.rebuild(); err != nil {
		return false, err
	}
	place, ok := f.place(page)
	if !ok {
		return false, nil
	}
	err := warmfile.ReadFull(file, b, place)
	if warmfile.IsReason(err, warmfile.ReasonTruncated) || err == nil && !f.sound(page, b) {
		f.lose(page)
		return false, nil
	}
	return err == nil, err
}

// sound tells whether b has the checksum that is stored in the page's slot.
func (f *index) sound(page int, b []byte) bool {
	return pageSum(f.sum, int64(page)*int64(f.PageSize), b) == f.entries[f.slotOf[page]].sum
}

// missing returns how many used pages are known to be missing.
func (f *index) missing() (n int) {
	for page := range f.pages() {
		if f.uses(page) && (f.slotOf[page] < 0 || f.isLost(page)) {
			n++
		}
	}
	return n
}

// items returns how many items begin in the pages of the slots; false if the number is unknown for a page.
func (f *index) items() (sum int64, known bool) {
	for _, e := range f.entries {
		switch {
		case e.page < 0:
		case e.items == unknownItems:
			return 0, false
		default:
			sum += int64(e.items)
		}
	}
	return sum, true
}
