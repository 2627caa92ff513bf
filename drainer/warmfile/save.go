package warmfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.com/memcached-operator/drainer/contract"
)

// A save is a warm file as it lies on a volume that memcached doesn't map: what
// speaks for the file first, then its used pages, each with a checksum.
//
//	"mcsave\x00\x01"        8 bytes
//	length of the header    u32, little-endian, as all numbers
//	its CRC-32C             u32
//	the header              JSON, see saveHeader
//	for each used page, in the file's order:
//	  the page              saveHeader.PageSize bytes
//	  its CRC-32C           u32: of the header's, its offset in the warm file (u64), the page
//
// A page's checksum covers where it belongs and to which save, so that neither
// another one's page nor one in another's place passes for it.
const (
	saveMagic     = "mcsave\x00\x01"
	savePrefix    = len(saveMagic) + 4 + 4
	saveChecksum  = 4
	maxSaveHeader = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// saveHeader is all of a save but its pages.
type saveHeader struct {
	// Number is higher than that of every save that was on the volume before.
	Number int64 `json:"number"`
	// Made is when it was written, by the member's clock.
	Made time.Time `json:"made"`
	// Size of the warm file, and of its pages.
	Size     int64 `json:"size"`
	PageSize int   `json:"pageSize"`
	// Used has a bit for each page, the lowest bit of the first byte first.
	Used []byte `json:"used"`
	// Manifest and Meta are what lay beside the file; empty: nothing.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Meta     string          `json:"meta,omitempty"`
}

func (h *saveHeader) pages() int { return int(h.Size / int64(h.PageSize)) }

func (h *saveHeader) uses(page int) bool { return h.Used[page/8]>>(page%8)&1 != 0 }

func (h *saveHeader) usedPages() (n int64) {
	for _, b := range h.Used {
		n += int64(bits.OnesCount8(b))
	}
	return n
}

// record is the room that a page takes.
func (h *saveHeader) record() int64 { return int64(h.PageSize) + saveChecksum }

// encode returns the header as it is written, and its checksum.
func (h *saveHeader) encode() ([]byte, uint32, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, 0, err
	}
	sum := crc32.Checksum(body, castagnoli)
	b := append([]byte(saveMagic), make([]byte, 8, 8+len(body))...)
	binary.LittleEndian.PutUint32(b[len(saveMagic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[len(saveMagic)+4:], sum)
	return append(b, body...), sum, nil
}

// check refuses a header that no save can have, so that nothing behind it has
// to fear a division by zero or a page that isn't there.
func (h *saveHeader) check() error {
	switch {
	case h.PageSize < 1<<10 || h.PageSize > maxPageSize:
		return fmt.Errorf("pages of %d bytes", h.PageSize)
	case h.Size < int64(h.PageSize) || h.Size%int64(h.PageSize) != 0:
		return fmt.Errorf("a warm file of %d bytes", h.Size)
	case h.Number < 1:
		return fmt.Errorf("the number %d", h.Number)
	case int64(len(h.Used)) != (h.Size/int64(h.PageSize)+7)/8:
		return fmt.Errorf("%d bytes of page bits for %d pages", len(h.Used), h.pages())
	case h.pages()%8 != 0 && h.Used[len(h.Used)-1]>>(h.pages()%8) != 0:
		return errors.New("a used page behind the last one")
	}
	return nil
}

// pageSum is the checksum of the page at offset of the warm file.
func pageSum(header uint32, offset int64, page []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint32(place[:], header)
	binary.LittleEndian.PutUint64(place[4:], uint64(offset))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, page)
}

// save reads one as if it were the warm file itself. A page is checked the first
// time that anything of it is read.
type save struct {
	saveHeader
	file io.ReaderAt
	sum  uint32 // of the header
	body int64  // offset of the first page's record
	// before has, for each 64 pages, how many used ones there are before them.
	before []int64

	mu      sync.Mutex
	checked []bool
	// page holds the used page that was checked last, at offset held.
	page []byte
	held int64
}

// readSave checks everything of a save but its pages.
func readSave(file io.ReaderAt, size int64) (*save, error) {
	truncated := func(want int64) error {
		return refuse(ReasonTruncated, "the save has %d bytes and should have %d: it was cut short", size, want)
	}
	if size < int64(savePrefix) {
		return nil, truncated(int64(savePrefix))
	}
	prefix := make([]byte, savePrefix)
	if err := readFull(file, prefix, 0); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(prefix, []byte(saveMagic)) {
		return nil, refuse(ReasonCorrupt, "a save begins with %q, found %q", saveMagic, prefix[:len(saveMagic)])
	}
	length := int64(binary.LittleEndian.Uint32(prefix[len(saveMagic):]))
	s := &save{file: file, sum: binary.LittleEndian.Uint32(prefix[len(saveMagic)+4:]), body: int64(savePrefix) + length, held: -1}
	switch {
	case length > maxSaveHeader:
		return nil, refuse(ReasonCorrupt, "the save's header has %d bytes", length)
	case size < s.body:
		return nil, truncated(s.body)
	}
	b := make([]byte, length)
	if err := readFull(file, b, int64(savePrefix)); err != nil {
		return nil, err
	}
	if got := crc32.Checksum(b, castagnoli); got != s.sum {
		return nil, refuse(ReasonCorrupt, "the save's header has the checksum %08x, found %08x", s.sum, got)
	}
	if err := json.Unmarshal(b, &s.saveHeader); err != nil {
		return nil, refuse(ReasonCorrupt, "the save's header: %v", err)
	}
	if err := s.check(); err != nil {
		return nil, refuse(ReasonCorrupt, "the save's header tells of %v", err)
	}
	switch want := s.body + s.usedPages()*s.record(); {
	case size < want:
		return nil, truncated(want)
	case size > want:
		return nil, refuse(ReasonCorrupt, "the save has %d bytes behind its last page", size-want)
	}
	s.index()
	return s, nil
}

func (s *save) index() {
	used := int64(0)
	for i, b := range s.Used {
		if i%8 == 0 {
			s.before = append(s.before, used)
		}
		used += int64(bits.OnesCount8(b))
	}
	s.checked = make([]bool, s.pages())
}

// place is where the record of a used page begins.
func (s *save) place(page int) int64 {
	n := s.before[page/64]
	for i := page / 64 * 64; i < page; i++ {
		if s.uses(i) {
			n++
		}
	}
	return s.body + n*s.record()
}

// ReadAt reads from the warm file that was saved; an unused page is zeros.
func (s *save) ReadAt(b []byte, offset int64) (n int, err error) {
	for n < len(b) {
		at := offset + int64(n)
		if at >= s.Size {
			return n, io.EOF
		}
		page, within := int(at/int64(s.PageSize)), at%int64(s.PageSize)
		part := b[n:min(int64(len(b)), int64(n)+int64(s.PageSize)-within)]
		if err := s.readWithin(part, page, within); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// readWithin reads a part of one page.
func (s *save) readWithin(b []byte, page int, within int64) error {
	if !s.uses(page) {
		clear(b)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	offset := int64(page) * int64(s.PageSize)
	if s.held == offset || !s.checked[page] {
		if err := s.hold(page, offset); err != nil {
			return err
		}
		copy(b, s.page[within:])
		return nil
	}
	return readFull(s.file, b, s.place(page)+within)
}

// hold reads a used page as a whole, and checks it.
func (s *save) hold(page int, offset int64) error {
	if s.held == offset {
		return nil
	}
	if s.page == nil {
		s.page = make([]byte, s.record())
	}
	s.held = -1
	place := s.place(page)
	if err := readFull(s.file, s.page, place); err != nil {
		return err
	}
	data := s.page[:s.PageSize]
	want, got := binary.LittleEndian.Uint32(s.page[s.PageSize:]), pageSum(s.sum, offset, data)
	if got != want {
		return corruptAt(place, "a page of the save with the checksum %08x, found %08x", want, got)
	}
	s.held, s.checked[page] = offset, true
	return nil
}

// Close closes the file.
func (s *save) Close() error {
	if c, ok := s.file.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// openSave opens the save in dir; os.ErrNotExist where there is none.
func openSave(dir string) (*save, error) {
	file, err := os.Open(filepath.Join(dir, contract.SaveFile))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(ReasonMissing, "%s is not a file", contract.SaveFile)
	}
	var s *save
	if err == nil {
		s, err = readSave(file, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}
