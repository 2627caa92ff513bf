package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/warmfile"
)

// smallFile has four pages, of which the last is not used.
func smallFile() []byte {
	b := make([]byte, 16<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 12 << 10 {
		b[i] = byte(r.Uint32())
	}
	return b
}

// smallSave is one of smallFile.
func smallSave(t testing.TB) []byte { return numbered(t, 1) }

func numbered(t testing.TB, number int64) []byte {
	t.Helper()
	h := &Header{Number: number, Size: 16 << 10, PageSize: 4 << 10, PageBits: []byte{0b0111}, Manifest: []byte(`{"state":"Died"}`)}
	var b bytes.Buffer
	if err := write(t.Context(), bytes.NewReader(smallFile()), &b, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAsFile reads all of the warm file in a save.
func readAsFile(b []byte) ([]byte, error) {
	s, err := read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(s, 0, min(s.Size, 1<<20)))
}

// TestDamagedSaveSaysWhatIsDamagedAndWhere: the reason, the offset in the warm file (-1: the
// damage is at no place in it), and the place in the save.
func TestDamagedSaveSaysWhatIsDamagedAndWhere(t *testing.T) {
	sound := smallSave(t)
	const page, record = 4 << 10, 4<<10 + checksumBytes
	body := len(sound) - 3*record
	flip := func(at int) []byte {
		b := bytes.Clone(sound)
		b[at] ^= 1
		return b
	}
	longer := bytes.Clone(sound)
	binary.LittleEndian.PutUint32(longer[len(magic):], maxHeader+1)
	other := numbered(t, 2)
	swapped := slices.Concat(sound[:body], sound[body+record:body+2*record], sound[body:body+record], sound[body+2*record:])
	place := func(n int) string { return fmt.Sprintf("page %d, at offset %d of the save", n, body+n*record) }
	for name, test := range map[string]struct {
		save   []byte
		reason warmfile.Reason
		offset int64
		words  string
	}{
		"nothing is left":               {nil, warmfile.ReasonTruncated, -1, "the save has 0 bytes and should have 16"},
		"cut in its prefix":             {sound[:prefixBytes-1], warmfile.ReasonTruncated, -1, "has 15 bytes and should have 16"},
		"cut in its header":             {sound[:body-1], warmfile.ReasonTruncated, -1, fmt.Sprintf("should have %d", body)},
		"cut before its pages":          {sound[:body], warmfile.ReasonTruncated, -1, fmt.Sprintf("should have %d", len(sound))},
		"cut in its last page":          {sound[:len(sound)-1], warmfile.ReasonTruncated, -1, fmt.Sprintf("should have %d", len(sound))},
		"one byte more":                 {append(bytes.Clone(sound), 0), warmfile.ReasonCorrupt, -1, "1 bytes behind its last page"},
		"its magic":                     {flip(0), warmfile.ReasonCorrupt, -1, "a save begins with"},
		"a longer header":               {longer, warmfile.ReasonCorrupt, -1, "header has 4194305 bytes, of at most 4194304"},
		"the length of its header":      {flip(len(magic)), warmfile.ReasonCorrupt, -1, "the save's header has the checksum"},
		"the checksum of its header":    {flip(len(magic) + 4), warmfile.ReasonCorrupt, -1, "the save's header has the checksum"},
		"a bit of its header":           {flip(prefixBytes + 3), warmfile.ReasonCorrupt, -1, "the save's header has the checksum"},
		"a page of another save":        {slices.Concat(sound[:body+record], other[body+record:]), warmfile.ReasonCorrupt, page, place(1)},
		"a bit of the first page":       {flip(body), warmfile.ReasonCorrupt, 0, place(0)},
		"a bit of the second page":      {flip(body + record + 7), warmfile.ReasonCorrupt, page, place(1)},
		"the checksum of the last page": {flip(len(sound) - 1), warmfile.ReasonCorrupt, 2 * page, place(2)},
		"two pages swapped":             {swapped, warmfile.ReasonCorrupt, 0, place(0)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readAsFile(test.save)
			var refusal *warmfile.Error
			if !errors.As(err, &refusal) || refusal.Reason != test.reason || refusal.Offset != test.offset || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want %s at %d: %s", err, test.reason, test.offset, test.words)
			}
		})
	}
}

func TestHeaderThatNoSaveCanHaveSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Header)
		want   string
	}{
		"pages of nothing":       {func(h *Header) { h.PageSize = 0 }, "the save's header: page size 0 is out of range"},
		"pages that are too big": {func(h *Header) { h.PageSize = warmfile.MaxPageSize + 1 }, "the save's header: page size 67108865 is out of range"},
		"an empty file":          {func(h *Header) { h.Size = 0 }, "the save's header: size 0 is not a whole number of pages"},
		"half a page":            {func(h *Header) { h.Size += 2048 }, "the save's header: size 18432 is not a whole number of pages"},
		"number 0":               {func(h *Header) { h.Number = 0 }, "the save's header: number 0 is out of range"},
		"too few bits":           {func(h *Header) { h.PageBits = nil }, "the save's header: page bits of 0 bytes, for 4 pages"},
		"one page too many":      {func(h *Header) { h.PageBits = []byte{1 << 4} }, "the save's header: a page after the last one is marked as used"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Header{Number: 1, Size: 16 << 10, PageSize: 4 << 10, PageBits: []byte{0}}
			test.change(h)
			b, _, err := h.encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err = readAsFile(b); !warmfile.IsReason(err, warmfile.ReasonCorrupt) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestSaveThatClaimsTooMuch: what a header makes the reader allocate is bounded, whatever
// warm file it speaks of.
func TestSaveThatClaimsTooMuch(t *testing.T) {
	const pages, page = 360 << 20, 1 << 10
	h := &Header{Number: 1, Size: pages * page, PageSize: page, PageBits: make([]byte, pages/8)}
	b, _, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = read(bytes.NewReader(b), int64(len(b)))
	runtime.ReadMemStats(&after)
	if want := fmt.Sprintf("header has %d bytes, of at most %d", len(b)-prefixBytes, maxHeader); !warmfile.IsReason(err, warmfile.ReasonCorrupt) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

func TestFileOfWhichNoSaveCanBeMadeSaysWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory_file")
	if err := os.WriteFile(path, make([]byte, 5), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const want = "no save can be made of the warm file: size 5 is not a whole number of pages"
	if _, err := Survey(file, 1); !warmfile.IsReason(err, warmfile.ReasonCorrupt) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// FuzzSave: no change of a save passes, whatever is overwritten or cut off.
func FuzzSave(f *testing.F) {
	sound := smallSave(f)
	want, err := readAsFile(sound)
	if err != nil || !bytes.Equal(want, smallFile()) {
		f.Fatalf("%d bytes, %v", len(want), err)
	}
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(20), []byte("\x00\x00"), uint32(1))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(sound)
		copy(b[int(at)%len(b):], patch)
		b = b[:len(b)-int(cut)%len(b)]
		switch got, err := readAsFile(b); {
		case bytes.Equal(b, sound):
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("a sound save: %v", err)
			}
		case !errors.Is(err, warmfile.ErrUnrecoverable):
			t.Errorf("a damaged save was read with %v", err)
		}
	})
}

// FuzzSaveHeader: whatever a header says whose checksum is right, nothing panics,
// and errors are of the documented kind.
func FuzzSaveHeader(f *testing.F) {
	h := Header{Number: 1, Size: 16 << 10, PageSize: 4 << 10, PageBits: []byte{1}}
	header, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, make([]byte, h.record()))
	f.Fuzz(func(t *testing.T, header, pages []byte) {
		b := append([]byte(magic), make([]byte, 8)...)
		binary.LittleEndian.PutUint32(b[len(magic):], uint32(len(header)))
		binary.LittleEndian.PutUint32(b[len(magic)+4:], crc32.Checksum(header, castagnoli))
		if _, err := readAsFile(append(append(b, header...), pages...)); err != nil && !errors.Is(err, warmfile.ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
