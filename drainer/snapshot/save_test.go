package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/memcached-operator/drainer/linux"

	"golang.org/x/sys/unix"

	"example.com/memcached-operator/drainer/warmfile"
)

const smallPage = 4 << 10

// smallFile returns a file of four pages, the last of which is unused.
func smallFile() []byte {
	b := make([]byte, 16<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 12 << 10 {
		b[i] = byte(r.Uint32())
	}
	return b
}

func smallHeader(number int64) *Header {
	return &Header{Number: number, Size: 16 << 10, PageSize: smallPage, PageBits: []byte{0b0111}, Manifest: []byte(`{"state":"Died"}`)}
}

// written returns the save of smallFile that Write makes.
func written(t testing.TB, number int64, o Options) []byte {
	t.Helper()
	path := filepath.Join(onDisk(t), "save")
	h := smallHeader(number)
	w, err := Write(t.Context(), bytes.NewReader(smallFile()), path, h, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := h.SaveBytes(); err != nil || n != int64(len(b)) || w.Bytes != n {
		t.Errorf("the save has %d bytes, foretold were %d, told %d, %v", len(b), n, w.Bytes, err)
	}
	return b
}

// readAsFile reads all of the warm file in a save.
func readAsFile(b []byte) ([]byte, error) {
	s, err := read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(s, 0, min(s.Size, 1<<20)))
}

// load loads the warm file of the save at path.
func load(t testing.TB, path string) ([]byte, error) {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out, err := os.Create(filepath.Join(onDisk(t), "memory_file"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := s.Expand(t.Context(), out, nil); err != nil {
		return nil, err
	}
	return os.ReadFile(out.Name())
}

// whole returns which of smallFile's pages got has; got must have nothing else.
func whole(t testing.TB, got []byte) (pages []int) {
	t.Helper()
	want := smallFile()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
	for page := range 3 {
		switch part := got[page*smallPage:][:smallPage]; {
		case bytes.Equal(part, want[page*smallPage:][:smallPage]):
			pages = append(pages, page)
		case !bytes.Equal(part, make([]byte, smallPage)):
			t.Errorf("page %d has what it never had", page)
		}
	}
	return pages
}

// wholePages returns the pages of a save on a disk that is read page by page.
func wholePages(t testing.TB, save []byte) []int {
	t.Helper()
	path := filepath.Join(onDisk(t), "save")
	if err := os.WriteFile(path, save, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := warmfile.Aligned(s.Size)
	for page := range int64(s.pages()) {
		b := got[page*smallPage:][:smallPage]
		if there, err := s.ReadPage(b, page*smallPage); err != nil {
			t.Fatal(err)
		} else if !there {
			clear(b)
		}
	}
	return whole(t, got)
}

// This holds in any order of its pages, with their counts.
func TestSaveIsReadAsItWasWritten(t *testing.T) {
	for name, order := range map[string][]int32{"in the file's order": nil, "the last first": {2, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			b := written(t, 7, Options{Order: order, Count: func(page []byte) (int64, bool) { return int64(page[0]), true }})
			path := filepath.Join(onDisk(t), "save")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := load(t, path); err != nil || !bytes.Equal(got, smallFile()) {
				t.Errorf("loaded were %d bytes, %v", len(got), err)
			}
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			file := smallFile()
			if n, known := s.Items(); !known || n != int64(file[0])+int64(file[smallPage])+int64(file[2*smallPage]) {
				t.Errorf("%d items, %t", n, known)
			}
			if missing, all := s.Lacks(); s.CutShort() || missing != 0 || all != 3 || s.Number != 7 {
				t.Errorf("cut short %t, %d of %d missing, number %d", s.CutShort(), missing, all, s.Number)
			}
			if got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size)); err != nil || !bytes.Equal(got, file) {
				t.Errorf("read were %d bytes, %v", len(got), err)
			}
		})
	}
}

// A save may be damaged, or lack pages: all other pages are read and no wrong one, and the number of missing pages
// is reported. Such a save is not loaded.
func TestASaveIsWorthItsWholePages(t *testing.T) {
	sound := written(t, 1, Options{})
	l := layoutOf(t, sound)
	flip := func(at int64) []byte {
		b := bytes.Clone(sound)
		b[at] ^= 1
		return b
	}
	other := written(t, 2, Options{})
	reversed := written(t, 1, Options{Order: []int32{2, 1, 0}})
	slotOf := func(b []byte, n int) []byte { return b[l.slot(n):l.slot(n+1)] }
	with := func(n int, slot []byte, b []byte) []byte {
		b = bytes.Clone(b)
		copy(slotOf(b, n), slot)
		return b
	}
	end := int64(len(sound))
	noFooter := sound[:end-1]
	for name, test := range map[string]struct {
		save []byte
		want []int
		cut  bool
	}{
		"its footer":                         {flip(l.slot(3) + 3*entryBytes + 1), []int{0, 1, 2}, true},
		"its index":                          {flip(l.slot(3)), []int{0, 1, 2}, true},
		"no footer":                          {noFooter, []int{0, 1, 2}, true},
		"the footer of another save":         {slices.Concat(sound[:l.slot(3)], other[l.slot(3):]), []int{0, 1, 2}, true},
		"cut in its last page":               {sound[:l.slot(3)-1], []int{0, 1}, true},
		"cut behind its last page":           {sound[:l.slot(3)], []int{0, 1, 2}, true},
		"cut in a slot's header":             {sound[:l.slot(1)+20], []int{0}, true},
		"cut before its pages":               {sound[:l.body], nil, true},
		"holes from the first slot on":       {slices.Concat(sound[:l.body], make([]byte, end-l.body)), nil, true},
		"a hole in the middle":               {slices.Concat(sound[:l.slot(1)], make([]byte, l.slotBytes()), sound[l.slot(2):]), []int{0, 2}, false},
		"a hole in the middle, no footer":    {slices.Concat(sound[:l.slot(1)], make([]byte, l.slotBytes()), sound[l.slot(2):end-1]), []int{0, 2}, true},
		"a bit of a page":                    {flip(l.slot(1) + slotHeader + 5), []int{0, 2}, false},
		"a bit of a page, no footer":         {flip(l.slot(1) + slotHeader + 5)[:end-1], []int{0, 2}, true},
		"a bit of a slot's header":           {flip(l.slot(1) + 25), []int{0, 1, 2}, false}, // the index has it
		"a bit of a slot's header, cut":      {flip(l.slot(1) + 25)[:end-1], []int{0, 2}, true},
		"two slots swapped, no footer":       {with(0, slotOf(sound, 1), with(1, slotOf(sound, 0), noFooter)), []int{2}, true},
		"a slot of another save, no footer":  {with(1, slotOf(other, 1), noFooter), []int{0, 2}, true},
		"a slot of another order, no footer": {with(1, slotOf(reversed, 1), noFooter), []int{0, 1, 2}, true}, // it is the same page
		"one page twice, no footer":          {with(0, slotOf(reversed, 0), noFooter), []int{1, 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := read(bytes.NewReader(test.save), int64(len(test.save)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
			if err != nil {
				t.Fatal(err)
			}
			if pages := whole(t, got); !slices.Equal(pages, test.want) {
				t.Errorf("there are the pages %v, want %v", pages, test.want)
			}
			if pages := wholePages(t, test.save); !slices.Equal(pages, test.want) {
				t.Errorf("read page by page there are %v, want %v", pages, test.want)
			}
			missing, all := s.Lacks()
			if missing != 3-len(test.want) || all != 3 || s.CutShort() != test.cut {
				t.Errorf("%d of %d are missing, cut short %t, want %t", missing, all, s.CutShort(), test.cut)
			}
			for page := range 4 {
				want := page < 3 && !slices.Contains(test.want, page)
				if missing, err := s.Missing(int64(page) * smallPage); err != nil || missing != want {
					t.Errorf("page %d is missing: %t, %v, want %t", page, missing, err, want)
				}
			}
			path := filepath.Join(onDisk(t), "save")
			if err := os.WriteFile(path, test.save, 0o600); err != nil {
				t.Fatal(err)
			}
			switch _, err := load(t, path); {
			case len(test.want) == 3 && err != nil:
				t.Errorf("all is there, and it is loaded with %v", err)
			case len(test.want) < 3 && !warmfile.IsReason(err, warmfile.ReasonSaveIncomplete):
				t.Errorf("it is loaded with %v", err)
			}
		})
	}
}

func layoutOf(t testing.TB, save []byte) layout {
	t.Helper()
	h, sum, end, err := readHeader(bytes.NewReader(save), int64(len(save)))
	if err != nil {
		t.Fatal(err)
	}
	return newLayout(h, sum, end)
}

// A save without a sound header is refused.
func TestSaveThatIsNoneIsRefused(t *testing.T) {
	sound := written(t, 1, Options{})
	l := layoutOf(t, sound)
	flip := func(at int) []byte {
		b := bytes.Clone(sound)
		b[at] ^= 1
		return b
	}
	longer := bytes.Clone(sound)
	binary.LittleEndian.PutUint32(longer[len(magic):], maxHeader+1)
	// The footer is right, and the index has one page twice.
	twice := bytes.Clone(sound)
	index := twice[l.slot(3):]
	copy(index[entryBytes:2*entryBytes], index[:entryBytes])
	footer := index[3*entryBytes:]
	binary.LittleEndian.PutUint32(footer[12:], crc32.Checksum(index[:3*entryBytes], castagnoli))
	binary.LittleEndian.PutUint32(footer[footerSum:], crc32.Checksum(footer[:footerSum], castagnoli))
	for name, test := range map[string]struct {
		save   []byte
		reason warmfile.Reason
		words  string
	}{
		"nothing is left":            {nil, warmfile.ReasonTruncated, "the save has 0 bytes and should have 16"},
		"cut in its prefix":          {sound[:prefixBytes-1], warmfile.ReasonTruncated, "has 15 bytes and should have 16"},
		"cut in its header":          {sound[:40], warmfile.ReasonTruncated, "has 40 bytes and should have"},
		"one byte more":              {append(bytes.Clone(sound), 0), warmfile.ReasonCorrupt, "1 bytes behind its end"},
		"its magic":                  {flip(0), warmfile.ReasonCorrupt, "a save begins with"},
		"its version":                {flip(7), warmfile.ReasonCorrupt, "a save begins with"},
		"a longer header":            {longer, warmfile.ReasonCorrupt, "header has 4194305 bytes, of at most 4194304"},
		"the length of its header":   {flip(len(magic)), warmfile.ReasonCorrupt, "the save's header has the checksum"},
		"the checksum of its header": {flip(len(magic) + 4), warmfile.ReasonCorrupt, "the save's header has the checksum"},
		"a bit of its header":        {flip(prefixBytes + 3), warmfile.ReasonCorrupt, "the save's header has the checksum"},
		"one page twice":             {twice, warmfile.ReasonCorrupt, "the save's index has a page twice, and not page 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readAsFile(test.save)
			if !warmfile.IsReason(err, test.reason) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want %s: %s", err, test.reason, test.words)
			}
		})
	}
}

func TestHeaderThatNoSaveCanHaveSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Header)
		want   string
	}{
		"pages of nothing":        {func(h *Header) { h.PageSize = 0 }, "the save's header: page size 0 is out of range"},
		"pages that are too big":  {func(h *Header) { h.PageSize = warmfile.MaxPageSize + 1 }, "the save's header: page size 67108865 is out of range"},
		"pages of odd sizes":      {func(h *Header) { h.PageSize = 2 << 10 }, "the save's header: pages of 2048 bytes"},
		"an empty file":           {func(h *Header) { h.Size = 0 }, "the save's header: size 0 is not a whole number of pages"},
		"half a page":             {func(h *Header) { h.Size += 2048 }, "the save's header: size 18432 is not a whole number of pages"},
		"number 0":                {func(h *Header) { h.Number = 0 }, "the save's header: number 0 is out of range"},
		"too few bits":            {func(h *Header) { h.PageBits = nil }, "the save's header: page bits of 0 bytes, for 4 pages"},
		"one page too many":       {func(h *Header) { h.PageBits = []byte{1 << 4} }, "the save's header: a page after the last one is marked as used"},
		"more pages than allowed": {func(h *Header) { h.Size = maxPages*smallPage + smallPage }, "is more than 2097152 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Header{Number: 1, Size: 16 << 10, PageSize: smallPage, PageBits: []byte{0}}
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

func TestFileOfWhichNoSaveCanBeMadeSaysWhatIsWrong(t *testing.T) {
	path := filepath.Join(onDisk(t), "memory_file")
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

// The slots that it announces don't exist.
func TestAHeaderThatClaimsTooMuchTakesNoMemory(t *testing.T) {
	h := &Header{Number: 1, Size: maxPages * smallPage, PageSize: smallPage, PageBits: bytes.Repeat([]byte{0xff}, maxPages/8)}
	b, _, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	s, err := read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if missing, all := s.Lacks(); missing != maxPages || all != maxPages || cap(s.index.entries) > 1 {
		t.Errorf("%d of %d are missing, there are %d entries", missing, all, cap(s.index.entries))
	}
}

// The save may have any writer: everything that its index announces is on the disk, and its pages are a hole.
func TestTheLargestSaveTakesLittleMemory(t *testing.T) {
	h := &Header{Number: 1, Size: maxPages * smallPage, PageSize: smallPage, PageBits: bytes.Repeat([]byte{0xff}, maxPages/8)}
	b, sum, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(onDisk(t), "save"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(b); err != nil {
		t.Fatal(err)
	}
	l := newLayout(h, sum, int64(len(b)))
	entries, end := make([]entry, maxPages), l.slot(maxPages)
	for i := range entries {
		entries[i] = entry{page: int32(maxPages - 1 - i), items: uint32(i % 7)}
	}
	if err := l.encodeTail(entries, 1, func(part []byte) error {
		_, err := file.WriteAt(part, end)
		end += int64(len(part))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := read(file, end)
	runtime.ReadMemStats(&after)
	if err != nil || end != l.size() || s.CutShort() || !slices.Equal(s.index.entries, entries) {
		t.Fatalf("%d bytes, want %d: %v", end, l.size(), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}

// A save that was cut short is left.
func TestWriteThatEndsEarly(t *testing.T) {
	path := filepath.Join(onDisk(t), "save")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	_, err := Write(ctx, bytes.NewReader(smallFile()), path, smallHeader(1), Options{Count: func([]byte) (int64, bool) {
		cancel(enough)
		return 0, true
	}})
	if !errors.Is(err, enough) {
		t.Fatalf("it ended with %v", err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
	if err != nil {
		t.Fatal(err)
	}
	pages := whole(t, got)
	if missing, _ := s.Lacks(); len(pages) == 0 || missing != 3-len(pages) || !s.CutShort() {
		t.Errorf("there are the pages %v, %d are missing, cut short %t", pages, missing, s.CutShort())
	}
}

// The worker fails only if nothing more can be removed.
func TestAWorkerThatFindsTheDiskFullWhileRoomIsMadeTriesAgain(t *testing.T) {
	var w writer
	var full atomic.Bool
	full.Store(true)
	refused, second := make(chan struct{}, 1), make(chan error, 1)
	put := func(told func()) error {
		if full.Load() {
			told()
			return unix.ENOSPC
		}
		return nil
	}
	rooms := 0
	w.MakeRoom = func() (bool, error) {
		if rooms++; rooms > 1 {
			return false, nil
		}
		go func() { second <- w.insist(func() error { return put(func() { refused <- struct{}{} }) }) }()
		<-refused
		full.Store(false)
		return true, nil
	}
	if err := w.insist(func() error { return put(func() {}) }); err != nil {
		t.Errorf("the worker that made room: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the worker that found the disk full meanwhile: %v", err)
	}
}

// onDisk returns a directory that is not in memory, where TMPDIR may be: there, nothing goes past the page
// cache.
func onDisk(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "snapshot-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A file system without direct I/O uses the page cache, and the bytes of the first and the later calls are
// the same.
func TestWithoutDirectIO(t *testing.T) {
	path := filepath.Join(onDisk(t), "file")
	d, err := openDirect(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := alignedCopy(bytes.Repeat([]byte("x"), block))
	if _, err := d.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(b[:block-1], block); err != nil { // not a multiple of a block: EINVAL
		t.Errorf("it gives up with %v", err)
	}
	if flags, err := unix.FcntlInt(d.Fd(), unix.F_GETFL, 0); err != nil || !d.cached.Load() || flags&linux.Direct != 0 {
		t.Error("it still goes past the page cache")
	}
	if info, err := d.Stat(); err != nil || info.Size() != 2*block-1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Any part of a save may be overwritten or cut off: a page is read unchanged, or is reported as missing.
func FuzzSave(f *testing.F) {
	sound := written(f, 1, Options{})
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(20), []byte("\x00\x00"), uint32(1))
	f.Add(uint32(4096), []byte("mcpage"), uint32(0))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		b := bytes.Clone(sound)
		copy(b[int(at)%len(b):], patch)
		b = b[:len(b)-int(cut)%len(b)]
		s, err := read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, warmfile.ErrUnrecoverable) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		got, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
		if err != nil {
			t.Fatal(err)
		}
		if missing, _ := s.Lacks(); missing != 3-len(whole(t, got)) {
			t.Errorf("%d are missing, and there are the pages %v", missing, whole(t, got))
		}
	})
}

// An index with the right checksum may say anything: nothing panics, and no page is read that is not there.
func FuzzIndex(f *testing.F) {
	sound := written(f, 1, Options{})
	l := layoutOf(f, sound)
	f.Add(bytes.Clone(sound[l.slot(3):][:3*entryBytes]))
	f.Fuzz(func(t *testing.T, patch []byte) {
		b := bytes.Clone(sound)
		index := b[l.slot(3):][:3*entryBytes]
		copy(index, patch)
		footer := b[l.slot(3)+3*entryBytes:]
		binary.LittleEndian.PutUint32(footer[12:], crc32.Checksum(index, castagnoli))
		binary.LittleEndian.PutUint32(footer[footerSum:], crc32.Checksum(footer[:footerSum], castagnoli))
		got, err := readAsFile(b)
		if err != nil {
			if !errors.Is(err, warmfile.ErrUnrecoverable) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		whole(t, got)
	})
}

// A header with the right checksum may say anything: nothing panics, and errors are of the documented kind.
func FuzzSaveHeader(f *testing.F) {
	h := Header{Number: 1, Size: 16 << 10, PageSize: 4 << 10, PageBits: []byte{1}}
	header, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, make([]byte, 20<<10))
	f.Fuzz(func(t *testing.T, header, pages []byte) {
		b := append([]byte(magic), make([]byte, 8)...)
		binary.LittleEndian.PutUint32(b[len(magic):], uint32(len(header)))
		binary.LittleEndian.PutUint32(b[len(magic)+4:], headerSum(header))
		if _, err := readAsFile(append(append(b, header...), pages...)); err != nil && !errors.Is(err, warmfile.ErrUnrecoverable) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
