// Package snapshot writes and reads saves: copies of a warm file's used pages, for a volume that memcached
// doesn't map. Each page has its own checksum, so the whole pages of a save that was cut short can be used.
//
// The layout of a save; every part begins at a multiple of 4 KiB, and numbers are little-endian:
//
//	the header:
//	  "mcsave\x00\x02"      8 bytes
//	  length of the header  u32
//	  a CRC-32C             u32: of the first 8 bytes and the header
//	  the header            JSON, see Header
//	a slot for each used page, slotHeader plus Header.PageSize bytes:
//	  "mcpage\x00\x02"      8 bytes
//	  the header's CRC      u32
//	  the page's CRC-32C    u32: of the header's CRC, the page's offset (u64), the page
//	  the slot's number     u64
//	  the page's offset     u64, in the warm file
//	  items                 u64: how many begin in the page; 2^64-1 unknown
//	  milliseconds          u64: since the save was begun
//	  CRC-32C               u32: of the 48 bytes before it
//	  nothing               up to 4 KiB
//	  the page
//	the index:
//	  for each slot, in order: the page's offset u64, its CRC-32C u32, 4 bytes of nothing,
//	  items u64
//	the footer, right after the index:
//	  "mcsaved\x02"         8 bytes
//	  the header's CRC      u32
//	  the index's CRC-32C   u32
//	  milliseconds          u64: that the save took
//	  CRC-32C               u32: of the 24 bytes before it
//
// The position of a slot follows from its number, so several workers can write at once. Pages may be in any
// order: if time is short, the most recently used ones come first. The footer is written last. If it is
// missing, the index is rebuilt from the slots' headers.
//
// A page's checksum covers its offset and its save, so a page of another save or from another offset is
// rejected.
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
	"time"

	"example.com/memcached-operator/drainer/warmfile"
)

const (
	magic       = "mcsave\x00\x02"
	prefixBytes = len(magic) + 4 + 4
	// block is the unit of positions and sizes in a save, so that a disk can be read and written past the
	// page cache.
	block = warmfile.Block
	// maxHeader bounds a header. The page bits of a warm file of 1 TiB take 175 KB; the manifest and .meta
	// take a few KB.
	maxHeader = 4 << 20
	// maxPages is the number of pages of a warm file of 2 TiB. The number bounds the memory for the index: about 20 bytes
	// for each page.
	maxPages = 2 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header describes a save; the pages follow it.
type Header struct {
	// Number is higher than the number of every earlier save of the volume.
	Number int64 `json:"number"`
	// Made is when the save was written, by the member's clock.
	Made time.Time `json:"made"`
	// Nonce is random, so that no two saves have the same header.
	Nonce uint64 `json:"nonce,omitempty"`
	// Size is the size of the warm file, PageSize that of its pages, in bytes.
	Size     int64 `json:"size"`
	PageSize int   `json:"pageSize"`
	// PageBits has a bit for each page, set if the page is used; the lowest bit of the first byte is the
	// first page.
	PageBits []byte `json:"used"`
	// Manifest and Meta describe the warm file; either may be empty.
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

// UsedPages returns the numbers of the pages in the save, in the file's order.
func (h *Header) UsedPages() []int32 {
	pages := make([]int32, 0, h.usedPages())
	for page := range int32(h.pages()) {
		if h.uses(int(page)) {
			pages = append(pages, page)
		}
	}
	return pages
}

// encode returns the header's bytes, padded to whole blocks, and its checksum.
func (h *Header) encode() ([]byte, uint32, error) {
	body, err := json.Marshal(h)
	if err != nil {
		return nil, 0, err
	}
	if len(body) > maxHeader {
		return nil, 0, fmt.Errorf("the header of a save would have %d bytes, where %d are the most", len(body), maxHeader)
	}
	sum := headerSum(body)
	b := append([]byte(magic), make([]byte, 8, 8+len(body)+block)...)
	binary.LittleEndian.PutUint32(b[len(magic):], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[len(magic)+4:], sum)
	return padded(append(b, body...)), sum, nil
}

// headerSum returns the checksum of a save's first 8 bytes and its header.
func headerSum(body []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(magic), castagnoli), castagnoli, body)
}

// padded adds zeros up to a multiple of a block.
func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&(block-1))...) }

// check refuses a header that no save can have, so that later code never divides by zero or looks for a page
// that doesn't exist.
func (h *Header) check() error {
	switch {
	case h.PageSize < 1<<10 || h.PageSize > warmfile.MaxPageSize:
		return fmt.Errorf("page size %d is out of range", h.PageSize)
	case h.Size < int64(h.PageSize) || h.Size%int64(h.PageSize) != 0:
		return fmt.Errorf("size %d is not a whole number of pages", h.Size)
	case h.Size/int64(h.PageSize) > maxPages:
		return fmt.Errorf("size %d is more than %d pages", h.Size, maxPages)
	case h.Number < 1:
		return fmt.Errorf("number %d is out of range", h.Number)
	case int64(len(h.PageBits)) != (h.Size/int64(h.PageSize)+7)/8:
		return fmt.Errorf("page bits of %d bytes, for %d pages", len(h.PageBits), h.pages())
	case h.pages()%8 != 0 && h.PageBits[len(h.PageBits)-1]>>(h.pages()%8) != 0:
		return errors.New("a page after the last one is marked as used")
	}
	return nil
}

// pageSum returns the checksum of the page at that offset of the warm file.
func pageSum(header uint32, offset int64, page []byte) uint32 {
	var place [12]byte
	binary.LittleEndian.PutUint32(place[:], header)
	binary.LittleEndian.PutUint64(place[4:], uint64(offset))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, page)
}

func truncated(size, want int64) error {
	return warmfile.Refuse(warmfile.ReasonTruncated, "the save has %d bytes and should have %d: it was cut short", size, want)
}

// readHeader reads the header of a save of size bytes. readHeader returns the header's checksum, and the offset of
// its end.
func readHeader(file io.ReaderAt, size int64) (h *Header, sum uint32, end int64, err error) {
	fail := func(err error) (*Header, uint32, int64, error) { return nil, 0, 0, err }
	if size < int64(prefixBytes) {
		return fail(truncated(size, int64(prefixBytes)))
	}
	prefix := make([]byte, prefixBytes)
	if err := warmfile.ReadFull(file, prefix, 0); err != nil {
		return fail(err)
	}
	if !bytes.HasPrefix(prefix, []byte(magic)) {
		return fail(warmfile.Refuse(warmfile.ReasonCorrupt, "a save begins with %q, found %q", magic, prefix[:len(magic)]))
	}
	length := int64(binary.LittleEndian.Uint32(prefix[len(magic):]))
	sum = binary.LittleEndian.Uint32(prefix[len(magic)+4:])
	switch end = int64(prefixBytes) + length; {
	case length > maxHeader:
		return fail(warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header has %d bytes, of at most %d", length, maxHeader))
	case size < end:
		return fail(truncated(size, end))
	}
	b := make([]byte, length)
	if err := warmfile.ReadFull(file, b, int64(prefixBytes)); err != nil {
		return fail(err)
	}
	if got := headerSum(b); got != sum {
		return fail(warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header has the checksum %08x, found %08x", sum, got))
	}
	h = &Header{}
	if err := json.Unmarshal(b, h); err != nil {
		return fail(warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header: %v", err))
	}
	if err := h.check(); err != nil {
		return fail(warmfile.Refuse(warmfile.ReasonCorrupt, "the save's header: %v", err))
	}
	return h, sum, end, nil
}
