// Package snapshot writes and reads saves: copies of a warm file's used pages, for a
// volume that memcached doesn't map. Each page has a checksum of its own.
package snapshot

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

	"example.com/memcached-operator/drainer/warmfile"
)

// The layout of a save: first the file's metadata, then its used pages, each with a
// checksum.
//
//	"mcsave\x00\x01"        8 bytes
//	length of the header    u32, little-endian, as all numbers
//	its CRC-32C             u32
//	the header              JSON, see Header
//	for each used page, in the file's order:
//	  the page              Header.PageSize bytes
//	  its CRC-32C           u32: of the header's, its offset in the warm file (u64), the page
//
// A page's checksum covers its place and its save, so no page of another save, and no
// page in another place, passes for it.
const (
	magic         = "mcsave\x00\x01"
	prefixBytes   = len(magic) + 4 + 4
	checksumBytes = 4
	// maxHeader is that of a warm file of 20 TiB. What is read of it takes ten times as much
	// memory at most.
	maxHeader = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is a save without its pages.
type Header struct {
	// Number is higher than that of every save that was on the volume before.
	Number int64 `json:"number"`
	// Made is when it was written, by the member's clock.
	Made time.Time `json:"made"`
	// Size of the warm file, and of its pages.
	Size     int64 `json:"size"`
	PageSize int   `json:"pageSize"`
	// PageBits has a bit for each page that is used, the lowest bit of the first byte first.
	PageBits []byte `json:"used"`
	// Manifest and Meta describe the file; empty: nothing does.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Meta     string          `json:"meta,omitempty"`
}

func (h *Header) pages() int { return int(h.Size / int64(h.PageSize)) }

func (h *Header) uses(page int) bool { return h.PageBits[page/8]>>(page%8)&1 != 0 }

func (h *Header) usedPages() (n int64) {
	for _, b := range h.PageBits {
		n += int64(bits.OnesCount8(b))
	}
	return n
}

// record is how many bytes a page takes in the save.
func (h *Header) record() int64 { return int64(h.PageSize) + checksumBytes }

// encode returns the header as it is written, and its checksum.
func (h *Header) encode() ([]byte, uint32, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, 0, err
	}
	sum := crc32.Checksum(body, castagnoli)
	b := append([]byte(magic), make([]byte, 8, 8+len(body))...)
	binary.LittleEndian.PutUint32(b[len(magic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[len(magic)+4:], sum)
	return append(b, body...), sum, nil
}

// check refuses a header that no save can have, so that later code can't divide by zero
// or look for a page that doesn't exist.
func (h *Header) check() error {
	switch {
	case h.PageSize < 1<<10 || h.PageSize > warmfile.MaxPageSize:
		return fmt.Errorf("page size %d is out of range", h.PageSize)
	case h.Size < int64(h.PageSize) || h.Size%int64(h.PageSize) != 0:
		return fmt.Errorf("size %d is not a whole number of pages", h.Size)
	case h.Number < 1:
		return fmt.Errorf("number %d is out of range", h.Number)
	case int64(len(h.PageBits)) != (h.Size/int64(h.PageSize)+7)/8:
		return fmt.Errorf("page bits of %d bytes, for %d pages", len(h.PageBits), h.pages())
	case h.pages()%8 != 0 && h.PageBits[len(h.PageBits)-1]>>(h.pages()%8) != 0:
		return errors.New("a page after the last one is marked as used")
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

// Save reads one as if it were the warm file itself. A page is checked the first
// time that anything of it is read.
type Save struct {
	Header
	file io.ReaderAt
	sum  uint32 // of the header
	body int64  // offset of the first page's record
	// before has, for each 64 pages, how many used ones there are before them.
	before []int64

	mu      sync.Mutex
	checked []bool
	// page is the used page that was checked last, at offset held.
	page []byte
	held int64
}

// read checks a save, without its pages.
func read(file io.ReaderAt, size int64) (*Save, error) {
	truncated := func(want int64) error {
		return warmfile.Refuse(warmfile.ReasonTruncated, "the save has %d bytes and should have %d: it was cut short", size, want)
	}
	if size < int64(prefixBytes) {
		return nil, truncated(int64(prefixBytes))
	}
	prefix := make([]byte, prefixBytes)
	if err := warmfile.ReadFull(file, prefix, 0); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(prefix, []byte(magic)) {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "a save begins with %q, found %q", magic, prefix[:len(magic)])
	}
	length := int64(binary.LittleEndian.Uint32(prefix[len(magic):]))
	s := &Save{file: file, sum: binary.LittleEndian.Uint32(prefix[len(magic)+4:]), body: int64(prefixBytes) + length, held: -1}
	switch {
	case length > maxHeader:
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header has %d bytes, of at most %d", length, maxHeader)
	case size < s.body:
		return nil, truncated(s.body)
	}
	b := make([]byte, length)
	if err := warmfile.ReadFull(file, b, int64(prefixBytes)); err != nil {
		return nil, err
	}
	if got := crc32.Checksum(b, castagnoli); got != s.sum {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header has the checksum %08x, found %08x", s.sum, got)
	}
	if err := json.Unmarshal(b, &s.Header); err != nil {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header: %v", err)
	}
	if err := s.check(); err != nil {
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header: %v", err)
	}
	switch want := s.body + s.usedPages()*s.record(); {
	case size < want:
		return nil, truncated(want)
	case size > want:
		return nil, warmfile.Refuse(warmfile.ReasonCorrupt, "the save has %d bytes behind its last page", size-want)
	}
	s.index()
	return s, nil
}

func (s *Save) index() {
	used := int64(0)
	for i, b := range s.PageBits {
		if i%8 == 0 {
			s.before = append(s.before, used)
		}
		used += int64(bits.OnesCount8(b))
	}
	s.checked = make([]bool, s.pages())
}

// place is where the record of a used page begins.
func (s *Save) place(page int) int64 {
	n := s.before[page/64]
	for i := page / 64 * 64; i < page; i++ {
		if s.uses(i) {
			n++
		}
	}
	return s.body + n*s.record()
}

// ReadAt reads from the warm file that was saved; an unused page is zeros.
func (s *Save) ReadAt(b []byte, offset int64) (n int, err error) {
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
func (s *Save) readWithin(b []byte, page int, within int64) error {
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
	// The page was checked before. Nobody writes to a save that is read, and to read a whole
	// page for each part of it would take long.
	return warmfile.ReadFull(s.file, b, s.place(page)+within)
}

// hold reads a whole used page into s.page, and checks it.
func (s *Save) hold(page int, offset int64) error {
	if s.held == offset {
		return nil
	}
	if s.page == nil {
		s.page = make([]byte, s.record())
	}
	s.held = -1
	place := s.place(page)
	if err := warmfile.ReadFull(s.file, s.page, place); err != nil {
		return err
	}
	data := s.page[:s.PageSize]
	want, got := binary.LittleEndian.Uint32(s.page[s.PageSize:]), pageSum(s.sum, offset, data)
	if got != want {
		return warmfile.CorruptAt(offset, "page %d, at offset %d of the save, with the checksum %08x, found %08x", page, place, want, got)
	}
	s.held, s.checked[page] = offset, true
	return nil
}

// Close closes the file.
func (s *Save) Close() error {
	if c, ok := s.file.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Used is the size of the used pages, in bytes.
func (s *Save) Used() int64 { return s.usedPages() * int64(s.PageSize) }

// Open opens the save at path; os.ErrNotExist if there is none.
func Open(path string) (*Save, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = warmfile.Refuse(warmfile.ReasonMissing, "%s is not a file", filepath.Base(path))
	}
	var s *Save
	if err == nil {
		s, err = read(file, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}
