package warmfile

import "encoding/binary"

// The layout of memcached's items and chunks, 64-bit little-endian, the same
// from 1.5.18 to 1.6.45. Source: memcached.h, struct _stritem and _strchunk.
const (
	offNext     = 0  // u64: next in the LRU, or in the chain of chunks
	offPrev     = 8  // u64
	offTime     = 24 // u32: last access, seconds after process_started
	offExpire   = 28 // u32: 0 never
	offBytes    = 32 // i32: value with its "\r\n"
	offRefcount = 36 // u16: 1 while no connection has the item
	offFlags    = 38 // u16
	offClass    = 40 // u8: slab class; LRU in the upper two bits
	offKeyLen   = 41 // u8

	offChunkHead = 16 // u64: the item that owns the chunk
	offChunkSize = 24 // i32: room
	offChunkUsed = 28 // i32
	offChunkOrig = 41 // u8: in an item's first chunk, the item's own class
	chunkHeader  = 42
)

// Flags of an item. Source: memcached.h, ITEM_*.
const (
	flagLinked    = 1
	flagCAS       = 2
	flagSlabbed   = 4
	flagFetched   = 8
	flagActive    = 16
	flagChunked   = 32
	flagChunk     = 64
	flagExternal  = 128 // the value is in extstore
	flagClient    = 256
	flagToken     = 512
	flagReserved  = 1024
	flagStale     = 2048
	flagKeyBinary = 4096

	// linkedFlags may be set on a linked item.
	linkedFlags = flagLinked | flagCAS | flagFetched | flagActive | flagChunked |
		flagClient | flagToken | flagReserved | flagStale | flagKeyBinary
	classMask = 0x3f
)

func u16(b []byte, at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// PageHeader is how many bytes of a page show whether it is used.
const PageHeader = itemHeader

// UnusedPage tells, by a page's first slot, whether the page belongs to no slab class: memcached zeroes the
// header of every page that it gives to its global pool. The flag means that the page was being cut into free
// slots.
func UnusedPage(b []byte) bool {
	return b[offClass] == 0 && u16(b, offFlags)&^flagSlabbed == 0 && b[offKeyLen] == 0
}
