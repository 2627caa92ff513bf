package warmfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"example.com/memcached-operator/drainer/internal/memcachedtest"
	"example.com/memcached-operator/drainer/item"
)

// smallImage is for files of a few pages of 4 KiB, for the fuzzer.
func smallImage() Image {
	return Image{SlabConfig: "2", MaxBytes: 16 << 10, ChunkSize: 48, ItemSizeMax: 8 << 10, SlabChunkMax: 2 << 10,
		SlabPageSize: 4 << 10, UseCAS: true, ProcessStarted: 1000, OldestLive: 5, Base: 0x10000}
}

// smallFile returns a file with a plain item, a chunked one and its chunks.
func smallFile() []byte {
	image := smallImage()
	b := make([]byte, image.MaxBytes)
	put := func(at int, flags uint16, class, nkey uint8, nbytes uint32) {
		binary.LittleEndian.PutUint16(b[at+offRefcount:], 1)
		binary.LittleEndian.PutUint16(b[at+offFlags:], flags)
		binary.LittleEndian.PutUint32(b[at+offBytes:], nbytes)
		b[at+offClass], b[at+offKeyLen] = class, nkey
	}
	put(0, flagLinked|flagCAS, 1, 3, 7)
	copy(b[56:], "key\x00value\r\n")
	for at := 96; at+96 <= 4096; at += 96 {
		put(at, flagSlabbed, 1, 0, 0)
	}
	largest := uint8(5)
	put(4096, flagLinked|flagCAS|flagChunked, largest, 3, 2500)
	copy(b[4096+56:], "big\x00")
	first := 4096 + 60
	chunk := func(at int, next, prev uint64, used uint32) {
		binary.LittleEndian.PutUint64(b[at+offNext:], next)
		binary.LittleEndian.PutUint64(b[at+offPrev:], prev)
		binary.LittleEndian.PutUint64(b[at+offChunkHead:], image.Base+4096)
		binary.LittleEndian.PutUint32(b[at+offChunkSize:], 2000)
		binary.LittleEndian.PutUint32(b[at+offChunkUsed:], used)
	}
	chunk(first, image.Base+8192, 0, 0)
	b[first+offChunkOrig] = 2
	for at := 4096 + 192; at+192 <= 8192; at += 192 {
		put(at, flagSlabbed, 2, 0, 0)
	}
	put(8192, flagChunk, largest, 0, 0)
	chunk(8192, image.Base+8192+2048, image.Base+uint64(first), 2000)
	put(8192+2048, flagChunk, largest, 0, 0)
	chunk(8192+2048, 0, image.Base+8192, 500)
	copy(b[8192+2048+chunkHeader+498:], "\r\n")
	return b
}

// readSmallFile reads b as a file of smallImage.
func readSmallFile(t testing.TB, b []byte, clean bool) (items []item.Item, err error) {
	image := smallImage()
	r, err := New(bytes.NewReader(b), int64(len(b)), &image, clean, func() time.Time { return time.Unix(2000, 0) })
	if err != nil {
		t.Fatal(err)
	}
	for it, err := range r.Items(context.Background()) {
		if err != nil {
			return items, err
		}
		items = append(items, *it)
	}
	return items, nil
}

func TestASmallFileIsReadWhole(t *testing.T) {
	for _, clean := range []bool{true, false} {
		items, err := readSmallFile(t, smallFile(), clean)
		if err != nil || len(items) != 2 || len(items[1].Value) != 2498 {
			t.Errorf("clean %t: %d items, %v", clean, len(items), err)
		}
	}
}

// A file may have any content: the reader neither panics nor loops, yields only possible items, and its refusals
// are of the documented kind.
func FuzzPages(f *testing.F) {
	good := smallFile()
	f.Add(good, true)
	f.Add(good, false)
	f.Add(make([]byte, len(good)), false)
	f.Fuzz(func(t *testing.T, data []byte, clean bool) {
		b := make([]byte, len(good))
		copy(b, data)
		items, err := readSmallFile(t, b, clean)
		if err != nil && !errors.Is(err, ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
		for _, it := range items {
			if len(it.Key) < 1 || len(it.Key) > 250 || len(it.Value) > smallImage().ItemSizeMax {
				t.Errorf("a key of %d and a value of %d bytes", len(it.Key), len(it.Value))
			}
		}
	})
}

// This changes single fields of a sound file, to get past the checks at which random bytes fail.
func FuzzPatches(f *testing.F) {
	f.Add(uint16(38), uint32(1), uint16(4134), uint32(0), false)
	f.Fuzz(func(t *testing.T, at1 uint16, v1 uint32, at2 uint16, v2 uint32, clean bool) {
		b := smallFile()
		binary.LittleEndian.PutUint32(b[int(at1)%(len(b)-4):], v1)
		binary.LittleEndian.PutUint32(b[int(at2)%(len(b)-4):], v2)
		if _, err := readSmallFile(t, b, clean); err != nil && !errors.Is(err, ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}

// Files that ParseMeta accepts have usable slab classes, or no reader reads them.
func FuzzMeta(f *testing.F) {
	f.Add([]byte(memcachedtest.Meta))
	f.Add([]byte("Tmain\nK \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseMeta(data)
		if err != nil {
			return
		}
		checkClasses(t, m)
	})
}

func checkClasses(t *testing.T, m *Image) {
	t.Helper()
	sizes, err := m.classes()
	if err != nil {
		return
	}
	if len(sizes) < 2 || len(sizes) > maxClass+1 {
		t.Fatalf("%d classes", len(sizes))
	}
	for _, n := range sizes[1:] {
		if n < itemHeader || n > m.SlabPageSize {
			t.Errorf("a class of %d bytes in pages of %d", n, m.SlabPageSize)
		}
	}
}
