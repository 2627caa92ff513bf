package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/memcached-operator/drainer/internal/firstsave"
	"example.com/memcached-operator/drainer/warmfile"
)

// firstSave is one of smallFile, of the first form.
func firstSave(t testing.TB, number int64) []byte {
	t.Helper()
	h := smallHeader(number)
	b, err := firstsave.Of(h, bytes.NewReader(smallFile()), h.PageSize, h.UsedPages())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDamagedFirstSaveSaysWhatIsDamagedAndWhere: the reason, the offset in the warm file
// (-1: the damage is at no place in it), and the place in the save.
func TestDamagedFirstSaveSaysWhatIsDamagedAndWhere(t *testing.T) {
	sound := firstSave(t, 1)
	const page, record = 4 << 10, 4<<10 + checksumBytes
	body := len(sound) - 3*record
	flip := func(at int) []byte {
		b := bytes.Clone(sound)
		b[at] ^= 1
		return b
	}
	longer := bytes.Clone(sound)
	binary.LittleEndian.PutUint32(longer[len(magic):], maxHeader+1)
	other := firstSave(t, 2)
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

// TestFirstSaveIsLoaded, too.
func TestFirstSaveIsLoaded(t *testing.T) {
	path := filepath.Join(onDisk(t), "save")
	if err := os.WriteFile(path, firstSave(t, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := load(t, path); err != nil || !bytes.Equal(got, smallFile()) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// FuzzFirstSave: no change of a save passes, whatever is overwritten or cut off.
func FuzzFirstSave(f *testing.F) {
	sound := firstSave(f, 1)
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

// FuzzSaveHeader: whatever a header of either form says whose checksum is right, nothing
// panics, and errors are of the documented kind.
func FuzzSaveHeader(f *testing.F) {
	h := Header{Number: 1, Size: 16 << 10, PageSize: 4 << 10, PageBits: []byte{1}}
	header, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, make([]byte, 4<<10+checksumBytes), true)
	f.Add(header, make([]byte, 20<<10), false)
	f.Fuzz(func(t *testing.T, header, pages []byte, first bool) {
		b := []byte(magic)
		if first {
			b = []byte(firstMagic)
		}
		b = append(b, make([]byte, 8)...)
		binary.LittleEndian.PutUint32(b[len(magic):], uint32(len(header)))
		binary.LittleEndian.PutUint32(b[len(magic)+4:], headerSum(string(b[:len(magic)]), header))
		if _, err := readAsFile(append(append(b, header...), pages...)); err != nil && !errors.Is(err, warmfile.ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
