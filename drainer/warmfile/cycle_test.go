package warmfile

import (
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sparse is a file whose beginning was written, and whose rest is a hole. sparse counts the bytes that are read
// from the beginning.
type sparse struct {
	begin []byte
	size  int64
	read  atomic.Int64
}

func (s *sparse) ReadAt(b []byte, offset int64) (int, error) {
	if offset+int64(len(b)) > s.size {
		return 0, io.EOF
	}
	clear(b)
	if offset < int64(len(s.begin)) {
		s.read.Add(int64(copy(b, s.begin[offset:])))
	}
	return len(b), nil
}

// A file can claim an item of 2 GiB whose few chunks form a cycle, or many items that share their chunks. In
// both cases the reader reads and allocates little more than the existing chunks.
func TestChainsAreBounded(t *testing.T) {
	const item, second, third = 4096, 8192, 8192 + 2048 // see smallFile
	for name, test := range map[string]struct {
		clean bool
		craft func(b []byte, base uint64) []byte
		want  string
	}{
		"a chunk that leads to itself": {true, func(b []byte, base uint64) []byte {
			binary.LittleEndian.PutUint64(b[second+offNext:], base+second)
			return b
		}, "twice"},
		"two chunks that lead to each other": {true, func(b []byte, base uint64) []byte {
			binary.LittleEndian.PutUint64(b[third+offNext:], base+second)
			return b
		}, "twice"},
		"empty chunks": {true, func(b []byte, base uint64) []byte {
			binary.LittleEndian.PutUint64(b[second+offNext:], base+second)
			binary.LittleEndian.PutUint32(b[second+offChunkUsed:], 0)
			return b
		}, "twice"},
		"two chunks, after a crash": {false, func(b []byte, base uint64) []byte {
			b[item+offRefcount] = 2 // the item was in use
			binary.LittleEndian.PutUint64(b[third+offNext:], base+second)
			return b
		}, "twice"},
		"items that share their chunks, after a crash": {false, func(b []byte, base uint64) []byte {
			b[item+offRefcount] = 2
			binary.LittleEndian.PutUint32(b[item+offBytes:], 2500)
			const slot = 192
			for at := item + slot; at+slot <= second; at += slot {
				copy(b[at:at+slot], b[item:])
			}
			return b
		}, "belongs to one item"},
	} {
		t.Run(name, func(t *testing.T) {
			image := smallImage()
			image.MaxBytes, image.ItemSizeMax = 4<<30, 1<<31-1
			if !test.clean {
				image.MaxBytes = 32 << 10
				image.ItemSizeMax = 16 << 10
			}
			b := smallFile()
			binary.LittleEndian.PutUint32(b[item+offBytes:], uint32(image.ItemSizeMax))
			file := &sparse{begin: test.craft(b, image.Base), size: image.MaxBytes}
			r, err := New(file, image.MaxBytes, &image, test.clean, func() time.Time { return time.Unix(2000, 0) })
			if err != nil {
				t.Fatal(err)
			}
			var got error
			for it, err := range r.Items(t.Context()) {
				if got = err; err == nil && len(it.Value) > len(b) {
					t.Errorf("an item of %d bytes", len(it.Value))
				}
			}
			if !IsReason(got, ReasonCorrupt) || !strings.Contains(got.Error(), test.want) {
				t.Errorf("got %v, want one that says %q", got, test.want)
			}
			if read, most := file.read.Load(), int64(1<<20); read > most {
				t.Errorf("%d bytes were read, of at most %d", read, most)
			}
		})
	}
}
